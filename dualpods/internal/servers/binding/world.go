package binding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/allocations"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// world is what one pass over a node knows: read once, and kept up with the
// pass's own writes.
type world struct {
	now       time.Time
	node      decide.Node
	pods      map[types.UID]*corev1.Pod // requesters
	launchers []*launcherPod
	agents    []*corev1.Pod  // of the node
	takers    []*launcherPod // result of open
	spi       map[types.UID]*decide.SPI
	kubelet   map[types.UID]dualpods.Allocation
	asked     map[types.UID]requester // of pods, as read
	silent    map[types.UID]time.Time // since when the programs do not answer that do not
	refusing  map[types.UID]bool      // of these: they answer, and take no orders of this controller
}

// requester is a requester Pod as read.
type requester struct {
	podmeta.Requester
	problems []podmeta.Problem
}

// pod returns the Pod of a requester; nil: it is gone.
func (w *world) pod(id dualpods.Identity) *corev1.Pod {
	if pod := w.pods[id.UID]; pod != nil && pod.Namespace == id.Namespace {
		return pod
	}
	return nil
}

// launcherPod is a launcher and its records.
type launcherPod struct {
	pod      *corev1.Pod
	of       *v1alpha1.LauncherConfig // nil of an orphan
	orphan   bool                     // bound, and no LauncherConfig owns it
	replaced bool                     // an orphan whose LauncherConfig exists, as when its DaemonSet was replaced
	closed   bool                     // it keeps the requesters that it has, and gets no new ones
	bindings []podmeta.Binding
	damaged  []podmeta.Problem // of records that cannot be read
	view     nodeview.View     // see look
	began    uint64            // the view's revision when the pass began
	staged   []staged          // new records that pod has, and the API server does not have yet
	written  *corev1.Pod       // with staged: what the API server has
	recorded []staged          // that were written, or could not be
}

// read reads the records of a launcher Pod.
func (l *launcherPod) read(pod *corev1.Pod) {
	l.pod = pod
	l.bindings, l.damaged = podmeta.ReadBindings(pod)
}

func (l *launcherPod) key() string { return string(l.pod.UID) }

// config is the name of the LauncherConfig that the launcher is of.
func (l *launcherPod) config() string { return dualpods.ConfigName(l.pod) }

// gather reads everything about a node, of name "" what is on none yet. The Pods
// are the cache's own: whoever changes one changes a copy.
func (c *Controller) gather(ctx context.Context, n *nodeWork) (*world, error) {
	w := &world{now: c.opts.Now(), node: decide.Node{Name: n.name}, pods: map[types.UID]*corev1.Pod{}, spi: map[types.UID]*decide.SPI{}, asked: map[types.UID]requester{}, silent: map[types.UID]time.Time{}, refusing: map[types.UID]bool{}}
	node, err := c.readNode(ctx, w)
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := c.opts.API.List(ctx, &pods, client.MatchingFields{dualpods.IndexNode: n.name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list the Pods of node %q: %w", n.name, err)
	}
	launchers := dualpods.NewLaunchers(c.opts.API)
	for i := range pods.Items {
		pod := n.newer(&pods.Items[i])
		kind, config, err := launchers.KindOf(ctx, pod)
		switch {
		case err != nil:
			return nil, err
		case c.isAgent(pod):
			w.agents = append(w.agents, pod)
		case kind.IsLauncher():
			l := &launcherPod{of: config, orphan: kind == dualpods.KindOrphan, closed: !launchers.TakesRequesters(config, node)}
			if l.orphan {
				if l.replaced, err = launchers.ConfigExists(ctx, pod); err != nil {
					return nil, err
				}
			}
			l.read(pod)
			l.view = c.look(l, "")
			l.began = l.view.Revision
			w.launchers = append(w.launchers, l)
		case kind == dualpods.KindRequester:
			w.pods[pod.UID] = pod
			read, problems := podmeta.ReadRequester(pod)
			w.asked[pod.UID] = requester{read, problems}
		}
	}
	slices.SortFunc(w.launchers, func(a, b *launcherPod) int {
		return cmp.Or(a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time), cmp.Compare(a.pod.UID, b.pod.UID))
	})
	n.forgetOthers(pods.Items)
	c.forgetServes(n, w)
	var asked sync.WaitGroup
	asked.Go(func() { c.askKubelet(ctx, n, w) })
	c.askRequesters(ctx, n, w)
	asked.Wait()
	return w, nil
}

// readNode reads the node of a pass; nil where there is none.
func (c *Controller) readNode(ctx context.Context, w *world) (*corev1.Node, error) {
	if w.node.Name == "" {
		return nil, nil
	}
	node := &corev1.Node{}
	switch err := c.opts.API.Get(ctx, client.ObjectKey{Name: w.node.Name}, node); {
	case apierrors.IsNotFound(err):
		w.node.Gone = true
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read node %s: %w", w.node.Name, err)
	}
	w.node.Gone = !node.DeletionTimestamp.IsZero()
	w.node.Unschedulable = node.Spec.Unschedulable
	return node, nil
}

// askLimit bounds a call to a requester program, which answers in a millisecond
// where it lives, and passLimit how long a pass waits for that, and for an order of its
// own (bind, become ready, become unready): the other requesters of the node wait
// meanwhile. The next pass sees whether an order that was cut off had its effect.
const (
	askLimit  = 2 * time.Second
	passLimit = 300 * time.Millisecond
)

// askRequesters asks every requester program that runs, all at once. One that
// has let a pass wait is asked beside the passes until it answers, so that it
// does not hold the other requesters of its node up.
func (c *Controller) askRequesters(ctx context.Context, n *nodeWork, w *world) {
	ctx, stop := context.WithTimeout(ctx, passLimit)
	defer stop()
	var asked sync.WaitGroup
	var mu sync.Mutex
	for uid, pod := range w.pods {
		if !running(pod) || w.node.Gone {
			continue
		}
		address := w.adminAddress(uid)
		if since, hangs := n.hangs(uid); hangs {
			mu.Lock()
			w.silent[uid] = since
			mu.Unlock()
			n.calls.begin(askKey(uid), false, func(ctx context.Context) (uint64, error) {
				ctx, stop := context.WithTimeout(ForRequester(ctx, uid), askLimit)
				defer stop()
				_, err := c.opts.Requesters.Proxy(ctx, address)
				if !errors.Is(err, context.DeadlineExceeded) {
					n.hangsNoMore(uid)
				}
				return 0, err
			})
			continue
		}
		asked.Go(func() {
			said, err := c.askRequester(ForRequester(ctx, uid), n, uid, address)
			if err != nil {
				c.log.V(1).Info("a requester does not answer", "pod", client.ObjectKeyFromObject(pod), "error", err.Error())
			} else {
				n.heard(uid)
			}
			mu.Lock()
			defer mu.Unlock()
			if w.spi[uid] = said; said == nil {
				w.silent[uid] = n.silentSince(uid, w.now, errors.Is(err, context.DeadlineExceeded))
				w.refusing[uid] = refused(err)
			}
		})
	}
	asked.Wait()
}

// askRequester asks one. What GPUs it has is asked once of each of its processes.
func (c *Controller) askRequester(ctx context.Context, n *nodeWork, uid types.UID, address string) (*decide.SPI, error) {
	proxy, err := c.opts.Requesters.Proxy(ctx, address)
	if err != nil {
		return nil, err
	}
	gpus, known := n.gpus.Program(uid, proxy.Instance)
	if !known {
		gpus, err = c.opts.Requesters.Accelerators(ctx, address)
		if refused(err) {
			return &decide.SPI{Wrong: err.Error(), Proxy: proxy}, nil
		}
		if err != nil {
			return nil, err
		}
		n.gpus.NoteProgram(uid, proxy.Instance, gpus)
	}
	return &decide.SPI{GPUs: gpus, Proxy: proxy}, nil
}

func (w *world) adminAddress(uid types.UID) string {
	address := net.JoinHostPort(w.pods[uid].Status.PodIP, strconv.Itoa(int(w.asked[uid].AdminPort)))
	if w.asked[uid].TLS {
		return "https://" + address
	}
	return address
}

// claim returns which GPUs a requester has, and the launcher of its record.
func (w *world) claim(pod *corev1.Pod) (claim allocations.Claim, on *launcherPod) {
	claim.Given = w.kubelet[pod.UID].GPUs
	if said := w.spi[pod.UID]; said != nil {
		claim.Says, claim.Answers = said.GPUs, true
	}
	on, record := w.boundTo(dualpods.IdentityOf(pod))
	if record != nil {
		claim.Bound = record.GPUs
	}
	return claim, on
}

// rivals returns other living requesters that have a GPU of this one's, or that are bound on it.
// The record of an orphan counts only if its word does.
func (w *world) rivals(uid types.UID) (names []string) {
	pod := w.pods[uid]
	mine, _ := w.claim(pod)
	for other, rival := range w.pods {
		if other == uid || dualpods.RequesterOf(rival).IsOver() {
			continue
		}
		theirs, on := w.claim(rival)
		if mine.IsRival(&theirs, on != nil && on.countsFor(pod.Namespace)) {
			names = append(names, rival.Namespace+"/"+rival.Name)
		}
	}
	slices.Sort(names)
	return names
}

// boundTo finds the launcher that has the requester's record, and the record.
func (w *world) boundTo(id dualpods.Identity) (*launcherPod, *podmeta.Binding) {
	for _, l := range w.launchers {
		for n := range l.bindings {
			if dualpods.IdentityIn(&l.bindings[n]) == id {
				return l, &l.bindings[n]
			}
		}
	}
	return nil, nil
}

// boundToo is another requester that is bound on one of a record's GPUs, there or not.
func (w *world) boundToo(l *launcherPod, record *podmeta.Binding) string {
	for _, other := range w.launchers {
		for i := range other.bindings {
			b := &other.bindings[i]
			if b.RequesterUID != record.RequesterUID && (other == l || other.countsFor(l.pod.Namespace)) && slices.ContainsFunc(b.GPUs, func(g string) bool { return slices.Contains(record.GPUs, g) }) {
				return b.Namespace + "/" + b.Name
			}
		}
	}
	return ""
}

// swapping is a requester for which a swap is under way on a GPU of somebody
// else's record: what the launcher has been asked for last is to stay.
func (w *world) swapping(n *nodeWork, record *podmeta.Binding) string {
	for _, l := range w.launchers {
		for i := range l.bindings {
			b := &l.bindings[i]
			if b.RequesterUID == record.RequesterUID && b.Namespace == record.Namespace || !slices.ContainsFunc(b.GPUs, func(g string) bool { return slices.Contains(record.GPUs, g) }) {
				continue
			}
			if a := n.calls.attempt(swapKey(l, b), l.view.Revision); a.Asked && !a.Over {
				return b.Namespace + "/" + b.Name
			}
		}
	}
	return ""
}

// subjects are the requesters there are, and those of which a record alone tells.
func (w *world) subjects() []dualpods.Identity {
	var ids []dualpods.Identity
	for _, pod := range w.pods {
		ids = append(ids, dualpods.IdentityOf(pod))
	}
	for _, l := range w.launchers {
		for n := range l.bindings {
			if id := dualpods.IdentityIn(&l.bindings[n]); w.pod(id) == nil && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	// Those that leave make room for those that come; those that are bound may have
	// a model that is awake by now, and want little; then by age.
	slices.SortFunc(ids, func(a, b dualpods.Identity) int { return w.rank(a).compare(w.rank(b)) })
	return ids
}

type rank struct {
	turn  turn
	since time.Time
	id    dualpods.Identity
}

// turn is which kind of requester is looked at first in a pass.
type turn int

const (
	leaves turn = iota
	isBound
	comes
)

func (w *world) rank(id dualpods.Identity) rank {
	pod := w.pod(id)
	if pod == nil {
		return rank{id: id}
	}
	r := rank{turn: comes, since: pod.CreationTimestamp.Time, id: id}
	if _, record := w.boundTo(id); record != nil {
		r.turn = isBound
	}
	if !pod.DeletionTimestamp.IsZero() {
		r.turn = leaves
	}
	return r
}

func (r rank) compare(other rank) int {
	switch {
	case r.turn != other.turn:
		return int(r.turn - other.turn)
	case !r.since.Equal(other.since):
		return r.since.Compare(other.since)
	}
	return cmp.Or(cmp.Compare(r.id.UID, other.id.UID), cmp.Compare(r.id.Namespace, other.id.Namespace))
}

// readySince is since when a Pod is ready; zero: it is not.
func readySince(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// running says that the program of a requester runs.
func running(pod *corev1.Pod) bool { return podmeta.ProgramOf(pod).Runs() }

// runs says that the program of a launcher runs.
func (l *launcherPod) runs() bool { return podmeta.ContainerRuns(l.pod, podmeta.ServingContainer) }
