package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/figures"
)

const (
	passLimit = 5 * time.Millisecond // of a pass for one ModelServing at rest
	atRest    = time.Minute          // in which the controller should write nothing
	fewOf     = 10                   // ModelServings of the baseline
)

// metricsAddress is where the controller answers /metrics, in the cluster's network.
const metricsAddress = "10.100.0.1:8080"

// servings has a thousand ModelServings at rest, each of one requester, ten on each of a hundred nodes. It
// counts the controller's writes in a minute, times its passes, and reads its memory. The baseline has ten.
func (b *bench) servings() (rows []figures.Row, err error) {
	r, err := b.resting("servings", servingsAtRest)
	if err != nil {
		return nil, err
	}
	return rowsOfRest(r.nodes, r.count, r.few, r.before, r.after), nil
}

// resting is what a part measured with few objects at rest, and with many.
type resting struct {
	nodes, count, few int
	before, after     *restMeasure
}

// resting has a thousand objects on a hundred nodes at rest, after ten.
func (b *bench) resting(part string, of atRestOf) (r resting, err error) {
	r.nodes, r.count = b.n(crowdNodes), b.n(1000)
	r.few = min(fewOf, r.count)
	p, err := b.newPlayed(part, r.nodes, 0)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	self, err := os.Executable()
	if err != nil {
		return r, fmt.Errorf("cannot find this program: %w", err)
	}
	bare, err := p.start("bare-cache", []string{bareCacheEnv + "=" + p.file("kwok")}, self)
	if err != nil {
		return r, err
	}
	if err := errors.Join(p.makeNodes(), p.startController("--metrics-address="+metricsAddress)); err != nil {
		return r, err
	}
	if err := of.come(p, 0, r.few); err != nil {
		return r, err
	}
	if r.before, err = p.measure(bare, r.few, of); err != nil {
		return r, err
	}
	if err := of.come(p, r.few, r.count); err != nil {
		return r, err
	}
	p.rest(settle)
	if r.after, err = p.measure(bare, r.count, of); err != nil {
		return r, err
	}
	return r, errors.Join(p.profile("heap?gc=1"), p.profile("goroutine"))
}

// atRestOf are the objects at rest, and the controller that has a pass for each change of one.
type atRestOf struct {
	controller string
	object     func(n int) client.Object
	come       func(p *played, first, last int) error // makes them, and waits until they run
}

var servingsAtRest = atRestOf{"groups", func(n int) client.Object {
	return &v1alpha1.ModelServing{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: servingName(n)}}
}, (*played).servingsCome}

// restMeasure is what was measured with objects at rest.
type restMeasure struct {
	writes  int // of the controller in the time of rest, and in all passes
	passes  passes
	gangs   passes  // over all groups
	rate    float64 // passes a second
	writing float64 // objects a second to which a client wrote, so that there were passes
	bytes   int     // that the controller has
	cache   int     // that the bare cache has
}

func rowsOfRest(nodes, count, few int, before, after *restMeasure) []figures.Row {
	what := fmt.Sprintf("%d ModelServings at rest, each with a requester that is served, on %d nodes", count, nodes)
	pass := figures.Row{
		Figure:  fmt.Sprintf("the same: a pass for one ModelServing, mean (ms), and share of passes within 5 ms; bare: %d ModelServings", few),
		Samples: after.passes.count, Ours: after.passes.String(), Bare: before.passes.String(),
		Target: "≤ " + figures.Short(passLimit), Met: after.passes.mean() <= passLimit,
	}
	pass.Beside = fmt.Sprintf("%.2f×", float64(after.passes.mean())/float64(before.passes.mean()))
	return []figures.Row{
		{
			Figure: what + fmt.Sprintf(": writes of the controller in %s, and in %d passes; bare: %d ModelServings", atRest, after.passes.count, few), Samples: 1,
			Ours: strconv.Itoa(after.writes), Bare: strconv.Itoa(before.writes), Target: "0", Met: after.writes == 0,
		},
		pass,
		{
			Figure: fmt.Sprintf("the same: a pass over all gangs, of which there are none, mean (ms), and share within 5 ms; bare: %d ModelServings", few), Samples: after.gangs.count,
			Ours: after.gangs.String(), Bare: before.gangs.String(),
		},
		{
			Figure: "the same: passes a second while a client changes an annotation of each ModelServing; bare: what the client changes a second", Samples: after.passes.count,
			Ours: fmt.Sprintf("%.0f", after.rate), Bare: fmt.Sprintf("%.0f", after.writing), Beside: fmt.Sprintf("%.2f×", after.rate/after.writing),
		},
		{
			Figure: fmt.Sprintf("the same: resident memory of the controller above that with %d ModelServings (%s); bare: a process that does nothing but keep the Pods in client-go's cache", few, mb(before.bytes)), Samples: 1,
			Ours: mb(after.bytes - before.bytes), Bare: mb(after.cache - before.cache), Beside: fmt.Sprintf("%+.1f kB for each", float64(after.bytes-before.bytes)/1e3/float64(max(1, count-few))),
		},
	}
}

// servingsCome makes the ModelServings from the first up to the last, and waits until they run.
func (p *played) servingsCome(first, last int) error {
	var servings []*v1alpha1.ModelServing
	for n := first; n < last; n++ {
		entry, err := playedEntry(func(t *corev1.PodTemplateSpec) {
			node := n % p.nodes
			t.Annotations[ipAnnotation], t.Spec.NodeName = podAddress(node, firstRequester+n/p.nodes), nodeName(node)
		})
		if err != nil {
			return err
		}
		m := &v1alpha1.ModelServing{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: servingName(n)}}
		m.Spec.Template.Roles = []v1alpha1.ServingRole{{Name: "server", EntryTemplate: entry}}
		servings = append(servings, m)
	}
	if err := sideBySide(p.ctx, servings, func(ctx context.Context, m *v1alpha1.ModelServing) error { return p.api.Create(ctx, m) }); err != nil {
		return fmt.Errorf("cannot make ModelServings: %w", err)
	}
	if err := p.until("all requesters are served", func(c *crowd) bool { return c.served == last }); err != nil {
		return err
	}
	return p.untilServings(last)
}

func servingName(n int) string { return fmt.Sprintf("serving-%d", n) }

// untilServings waits until so many ModelServings run.
func (p *played) untilServings(count int) error {
	return p.poll(time.Second, func(ctx context.Context) (lacks string, err error) {
		var list v1alpha1.ModelServingList
		if err := p.api.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return "", fmt.Errorf("cannot list the ModelServings: %w", err)
		}
		running := 0
		for i := range list.Items {
			if runs(&list.Items[i]) {
				running++
			}
		}
		if running != count {
			lacks = fmt.Sprintf("%d of %d ModelServings run", running, count)
		}
		return lacks, nil
	})
}

// passRounds is how often each object has a pass that is timed.
const passRounds = 5

// measure counts writes in the time of rest; then it has the controller make passes that find nothing to
// do: it changes an annotation of each object.
func (p *played) measure(bare *program, count int, of atRestOf) (m *restMeasure, err error) {
	m = &restMeasure{}
	began := time.Now()
	p.rest(atRest)
	was, err := p.passes(of.controller)
	if err != nil {
		return nil, err
	}
	gangs, err := p.passes("gang")
	if err != nil {
		return nil, err
	}
	touched := time.Now()
	err = p.profiled(10, func() error { return p.touch(count, of) })
	if err != nil {
		return nil, err
	}
	m.writing = float64(count*passRounds) / time.Since(touched).Seconds()
	is, err := p.untilQuiet(of.controller)
	if err != nil {
		return nil, err
	}
	m.passes, m.rate = is.since(was), float64(is.since(was).count)/is.last.Sub(touched).Seconds()
	if is, err = p.untilQuiet("gang"); err != nil {
		return nil, err
	}
	m.gangs = is.since(gangs)
	if m.writes, err = p.writesSince(began); err != nil {
		return nil, err
	}
	m.bytes, err = p.resident(p.controller, "VmRSS")
	if err != nil {
		return nil, err
	}
	m.cache, err = p.resident(bare, "VmRSS")
	return m, err
}

// touch changes an annotation of each object, round after round.
func (p *played) touch(count int, of atRestOf) error {
	var all []client.Object
	for n := range count {
		all = append(all, of.object(n))
	}
	for round := range passRounds {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"bench.hotseat.dev/round":"%d-%d"}}}`, count, round))
		err := sideBySide(p.ctx, all, func(ctx context.Context, o client.Object) error { return p.api.Patch(ctx, o, patch) })
		if err != nil {
			return fmt.Errorf("cannot change objects: %w", err)
		}
	}
	return nil
}

// writesSince counts the controller's writes.
func (p *played) writesSince(began time.Time) (count int, err error) {
	// The log has all of them once it has a write that comes after them.
	mark := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: launcherName(0)}}
	at := time.Now()
	if err := p.api.Patch(p.ctx, mark, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"bench.hotseat.dev/mark":%q}}}`, at))); err != nil {
		return 0, fmt.Errorf("cannot write to Pod %s: %w", mark.Name, err)
	}
	writes, err := readAudit(p.ctx, p.AuditLog(), mark.Name, func(w *write) bool { return w.Verb == "patch" && w.Received.After(at.Add(-time.Second)) })
	if err != nil {
		return 0, err
	}
	for _, w := range writes {
		if w.byController() && w.Received.After(began) {
			p.b.say("%s: the controller wrote: %s %s/%s %s", p.Name, w.Verb, w.Object.Resource, w.Object.Subresource, w.Object.Name)
			count++
		}
	}
	return count, nil
}

// passes are those of a controller, by its metrics.
type passes struct {
	count, quick int // quick: that took at most passLimit
	sum          time.Duration
	last         time.Time // when there was one more, as far as this was seen
}

func (p passes) since(was passes) passes {
	return passes{count: p.count - was.count, quick: p.quick - was.quick, sum: p.sum - was.sum}
}

func (p passes) mean() time.Duration { return p.sum / time.Duration(max(1, p.count)) }

func (p passes) String() string {
	return fmt.Sprintf("%s, %.1f %%", figures.MS(p.mean()), 100*float64(p.quick)/float64(max(1, p.count)))
}

// passes reads those of a controller.
func (p *played) passes(controller string) (all passes, err error) {
	text, err := p.ask(p.ctx, http.MethodGet, metricsAddress, "/metrics")
	if err != nil {
		return all, err
	}
	return readPasses(text, controller)
}

// readPasses reads the passes of a controller from the text of its process's metrics.
func readPasses(text []byte, controller string) (all passes, err error) {
	metric, of := "controller_runtime_reconcile_time_seconds", fmt.Sprintf("{controller=%q", controller)
	values := map[string]float64{metric + "_count" + of + "}": -1, metric + "_sum" + of + "}": -1, metric + "_bucket" + of + `,le="0.005"}`: -1}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if _, ours := values[name]; !ours {
			continue
		}
		if values[name], err = strconv.ParseFloat(text, 64); err != nil {
			return all, fmt.Errorf("cannot read the controller's metrics: %w", err)
		}
	}
	for name, value := range values {
		if value < 0 {
			return all, fmt.Errorf("the controller's metrics lack %s", name)
		}
	}
	return passes{
		count: int(values[metric+"_count"+of+"}"]), quick: int(values[metric+"_bucket"+of+`,le="0.005"}`]),
		sum: time.Duration(values[metric+"_sum"+of+"}"] * float64(time.Second)),
	}, nil
}

// untilQuiet returns the passes of a controller once there have been no more for a second.
func (p *played) untilQuiet(controller string) (all passes, err error) {
	err = p.poll(20*time.Millisecond, func(context.Context) (lacks string, err error) {
		now, err := p.passes(controller)
		if now.count != all.count {
			all, all.last = now, time.Now()
		}
		if time.Since(all.last) <= time.Second {
			lacks = "the passes of " + controller + " do not end"
		}
		return lacks, err
	})
	return all, err
}
