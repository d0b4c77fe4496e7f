package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/test/helpers/figures"
)

// Bounds of the figures with many nodes, as parts of the bare ones, and of the writes to Pods for
// each binding.
const (
	leastRate  = 0.85
	mostAtOnce = 1.3
	mostBeside = 1.05
	mostMemory = 1.1
	writesEach = 1.3 // where ten requesters come to a node
	leastAhead = 0.99
)

// crowdNodes is how many nodes the parts but memory have.
const crowdNodes = 100

// atOnce times what dual pods add to hot starts, of one requester at a time and of
// one on each of a hundred nodes at once; then the same while some launchers hang.
func (b *bench) atOnce() (rows []figures.Row, err error) {
	nodes := b.n(crowdNodes)
	p, err := b.newPlayed("at-once", nodes, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := errors.Join(p.makeNodes(), p.startController()); err != nil {
		return nil, err
	}
	warm := p.requesters(nodes)
	if err := errors.Join(p.come(warm), p.leave(warm)); err != nil {
		return nil, err
	}
	ones, err := p.rounds(b.n(100), 1)
	if err != nil {
		return nil, err
	}
	oneWrite, err := p.writesAtOnce(b.n(100), 1)
	if err != nil {
		return nil, err
	}
	var all *arrivals
	err = p.profiled(2, func() (err error) {
		all, err = p.rounds(b.n(5), nodes)
		return err
	})
	if err != nil {
		return nil, err
	}
	allWrite, err := p.writesAtOnce(b.n(5), nodes)
	if err != nil {
		return nil, err
	}
	hung := max(1, nodes/20)
	beside, err := p.rounds(b.n(5), nodes-hung)
	if err != nil {
		return nil, err
	}
	slowed, err := p.hanging(b.n(5), hung)
	if err != nil {
		return nil, err
	}
	figure := ": Pod scheduled → wake call, plus container running and wake answered → readiness relayed"
	one := figures.Timed("1 requester"+figure+"; bare: one write to a Pod", ones.added, oneWrite, addedP50, addedP99)
	many := figures.Timed(fmt.Sprintf("%d requesters at once%s; bare: one write to each of as many Pods at once", nodes, figure), all.added, allWrite, 0, 0)
	hang := figures.Timed(fmt.Sprintf("%d requesters at once, launchers of %d other nodes hang%s; bare: none hangs", nodes-hung, hung, figure), slowed.added, beside.added, 0, 0)
	atMost(&many, float64(all.added.P50()), float64(allWrite.P50()), mostAtOnce)
	atMost(&hang, float64(slowed.added.P50()), float64(beside.added.P50()), mostBeside)
	return []figures.Row{one, many, hang, boundAhead(ones, all, beside, slowed)}, nil
}

// atMost has a row compare a figure with the bare one, of which it may be so many times as much.
func atMost(r *figures.Row, ours, bare, most float64) {
	times := ours / bare
	r.Beside, r.Target, r.Met = fmt.Sprintf("%.2f×", times), fmt.Sprintf("≤ %g× the bare", most), times <= most
}

// hanging is rounds while the launchers of the last nodes hang with a requester
// each that wants a swap of them.
func (p *played) hanging(rounds, hung int) (*arrivals, error) {
	var names []string
	for n := p.nodes - hung; n < p.nodes; n++ {
		names = append(names, strconv.Itoa(n))
	}
	query := "/hang?nodes=" + strings.Join(names, ",") + "&on="
	if _, err := p.ask(p.ctx, http.MethodPost, notesAddress, query+"true"); err != nil {
		return nil, err
	}
	stuck := p.requesters(p.nodes)[p.nodes-hung:]
	if err := p.arrive(stuck); err != nil {
		return nil, err
	}
	times, err := p.rounds(rounds, p.nodes-hung)
	if err != nil {
		return nil, err
	}
	if _, err := p.ask(p.ctx, http.MethodPost, notesAddress, query+"false"); err != nil {
		return nil, err
	}
	return times, p.leave(stuck)
}

// arrivals are hot starts on played nodes.
type arrivals struct {
	// added is what dual pods add: Pod scheduled → wake call, and container running and wake
	// answered, the later of the two → readiness relayed.
	added figures.Times
	ahead int // wake calls that came before the container ran
}

// rounds are hot starts of so many requesters at once, that come and go again.
func (p *played) rounds(rounds, each int) (*arrivals, error) {
	var measured []*corev1.Pod
	for range rounds {
		pods := p.requesters(each)
		if err := p.come(pods); err != nil {
			return nil, err
		}
		if err := p.leave(pods); err != nil {
			return nil, err
		}
		measured = append(measured, pods...)
	}
	last := measured[len(measured)-1]
	writes, err := readAudit(p.ctx, p.AuditLog(), last.Name, func(w *write) bool { return w.Verb == "delete" })
	if err != nil {
		return nil, err
	}
	notes, err := p.notes(p.ctx)
	if err != nil {
		return nil, err
	}
	scheduled, running := map[string]time.Time{}, map[string]time.Time{}
	for i := range writes {
		w := &writes[i]
		if w.schedules() {
			scheduled[w.Object.Name] = w.Answered
		}
		if running[w.Object.Name].IsZero() && w.Object.Subresource == "status" && !w.byController() {
			running[w.Object.Name] = w.Answered
		}
	}
	all := &arrivals{}
	for _, pod := range measured {
		if err := all.add(scheduled[pod.Name], running[pod.Name], notes[string(pod.UID)]); err != nil {
			return nil, fmt.Errorf("cannot time Pod %s: %w", pod.Name, err)
		}
	}
	return all, nil
}

// add adds one. Scheduled and running are when the API server had answered the write that says so.
func (a *arrivals) add(scheduled, running time.Time, n note) error {
	if scheduled.IsZero() || running.IsZero() || n.Came.IsZero() || n.Ready.IsZero() {
		return fmt.Errorf("moments are missing: scheduled %s, running %s, and the stand-in has %+v", scheduled, running, n)
	}
	if n.Came.Before(running) {
		a.ahead++
	}
	served := n.Over
	if running.After(served) {
		served = running
	}
	a.added = append(a.added, n.Came.Sub(scheduled)+n.Ready.Sub(served))
	return nil
}

// boundAhead is the row of how many wake calls came before the containers ran.
func boundAhead(all ...*arrivals) figures.Row {
	ahead, count := 0, 0
	for _, a := range all {
		ahead, count = ahead+a.ahead, count+len(a.added)
	}
	share := float64(ahead) / float64(count)
	return figures.Row{
		Figure: "all of these: share whose wake call came before the container ran", Samples: count,
		Ours: fmt.Sprintf("%.1f %%", 100*share), Target: fmt.Sprintf("≥ %.0f %%", 100*leastAhead), Met: share >= leastAhead,
	}
}

// bindings counts bindings a second, and writes to Pods of each, when the
// controller finds a thousand requesters that all want to be served.
func (b *bench) bindings() (rows []figures.Row, err error) {
	nodes, count := b.n(crowdNodes), b.n(1000)
	p, err := b.newPlayed("bindings", nodes, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	pods := p.requesters(count)
	if err := errors.Join(p.makeNodes(), p.arrive(pods)); err != nil {
		return nil, err
	}
	if err := p.until("all requesters run", func(c *crowd) bool { return c.running == nodes+count }); err != nil {
		return nil, err
	}
	if err := p.startController(); err != nil {
		return nil, err
	}
	if err := p.until("the first requester is served", func(c *crowd) bool { return c.served > 0 }); err != nil {
		return nil, err
	}
	err = p.profiled(2, func() error {
		return p.until("all requesters are served", func(c *crowd) bool { return c.served == count })
	})
	if err != nil {
		return nil, err
	}
	writes, err := readAudit(b.ctx, p.AuditLog(), pods[count-1].Name, func(w *write) bool { return w.byController() })
	if err != nil {
		return nil, err
	}
	mine, took := byController(writes)
	p.controller.stop()
	bare, err := p.bareWrites(pods, mine)
	if err != nil {
		return nil, err
	}
	rate, each := float64(count)/took.Seconds(), float64(mine)/float64(count)
	return []figures.Row{
		{
			Figure: fmt.Sprintf("%d requesters at once on %d nodes: bindings a second; bare: a client that does nothing but write as often", count, nodes), Samples: count,
			Ours: fmt.Sprintf("%.0f", rate), Bare: fmt.Sprintf("%.0f", bare), Beside: fmt.Sprintf("%.2f×", rate/bare), Target: fmt.Sprintf("≥ %g× the bare", leastRate), Met: rate >= leastRate*bare,
		},
		{
			Figure: "the same: writes to Pods for each binding", Samples: count,
			Ours: fmt.Sprintf("%.2f", each), Target: fmt.Sprintf("≤ %g", writesEach), Met: each <= writesEach,
		},
	}, nil
}

// profiled keeps a profile of the controller's first seconds in do.
func (p *played) profiled(seconds int, do func() error) error {
	profiled := make(chan error, 1)
	go func() { profiled <- p.profile(fmt.Sprintf("profile?seconds=%d", seconds)) }()
	err := do()
	return errors.Join(err, <-profiled)
}

// byController counts the controller's writes to Pods, and gives the time from the first to
// the answer of the last.
func byController(writes []write) (count int, took time.Duration) {
	var first, last time.Time
	for _, w := range writes {
		if !w.byController() || w.Object.Resource != "pods" {
			continue
		}
		count++
		if first.IsZero() || w.Received.Before(first) {
			first = w.Received
		}
		if w.Answered.After(last) {
			last = w.Answered
		}
	}
	return count, last.Sub(first)
}

// writesAtOnce are times of a write to each of so many Pods, all begun at once by
// a client that does nothing else.
func (p *played) writesAtOnce(rounds, each int) (times figures.Times, err error) {
	for round := range rounds {
		took, errs := make(figures.Times, each), make([]error, each)
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"bench.hotseat.dev/round":"%d"}}}`, round))
		var writing sync.WaitGroup
		began := time.Now()
		for n := range each {
			writing.Go(func() {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: launcherName(n)}}
				errs[n] = p.api.Patch(p.ctx, pod, patch)
				took[n] = time.Since(began)
			})
		}
		writing.Wait()
		if err := errors.Join(errs...); err != nil {
			return nil, fmt.Errorf("cannot write to Pods: %w", err)
		}
		times = append(times, took...)
	}
	return times, nil
}

// bareWrites is how many Pods a second a client can bring so many writes to in all, one Pod after
// the other and from the first one again, sixteen at a time, on the same API server with the same
// watchers.
func (p *played) bareWrites(pods []*corev1.Pod, all int) (perSecond float64, err error) {
	began := time.Now()
	for left, n := all, 0; left > 0; n++ {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"bench.hotseat.dev/write":"%d"}}}`, n))
		some := pods[:min(left, len(pods))]
		err := sideBySide(p.ctx, some, func(ctx context.Context, pod *corev1.Pod) error { return p.api.Patch(ctx, pod.DeepCopy(), patch) })
		if err != nil {
			return 0, fmt.Errorf("cannot write to Pods: %w", err)
		}
		left -= len(some)
	}
	return float64(len(pods)) / time.Since(began).Seconds(), nil
}
