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
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/podmeta"
)

// world is what one pass over a node knows: read once, and kept up with the
// pass's own writes.
type world struct {
	now       time.Time
	node      Node
	pods      map[types.UID]*corev1.Pod // requesters
	launchers []*launcherPod
	spi       map[types.UID]*SPI
	kubelet   map[types.UID]Allocation
	asked     map[types.UID]requester // of pods, as read
	silent    map[types.UID]time.Time // since when the programs do not answer that do not
	refusing  map[types.UID]bool      // of these: they answer, and take no orders of this controller
}

// requester is a requester Pod as read.
type requester struct {
	podmeta.Requester
	problems []podmeta.Problem
}

// launcherPod is a launcher and its records.
type launcherPod struct {
	pod      *corev1.Pod
	orphan   bool // bound, and its LauncherConfig or its DaemonSet is gone
	replaced bool // an orphan whose LauncherConfig exists, as when its DaemonSet was replaced
	bindings []podmeta.Binding
	damaged  []podmeta.Problem // of records that cannot be read
	view     nodeview.View
	began    uint64 // the view's revision when the pass began
}

func (l *launcherPod) read(pod *corev1.Pod) {
	l.pod = pod
	l.bindings, l.damaged = podmeta.ReadBindings(pod)
}

func (l *launcherPod) key() string { return string(l.pod.UID) }

// config is the name of the LauncherConfig that the launcher is of.
func (l *launcherPod) config() string { return l.pod.Labels[podmeta.LabelLauncherConfig] }

func (l *launcherPod) image() string {
	if c := podmeta.Container(&l.pod.Spec, podmeta.ServingContainer); c != nil {
		return c.Image
	}
	return ""
}

// gather reads everything about a node, of name "" what is on none yet. The Pods
// are the cache's own: whoever changes one changes a copy.
func (c *Controller) gather(ctx context.Context, n *nodeWork) (*world, error) {
	w := &world{now: c.opts.Now(), node: Node{Name: n.name}, pods: map[types.UID]*corev1.Pod{}, spi: map[types.UID]*SPI{}, kubelet: map[types.UID]Allocation{}, asked: map[types.UID]requester{}, silent: map[types.UID]time.Time{}, refusing: map[types.UID]bool{}}
	if n.name != "" {
		var node corev1.Node
		switch err := c.opts.API.Get(ctx, client.ObjectKey{Name: n.name}, &node); {
		case apierrors.IsNotFound(err):
			w.node.Gone = true
		case err != nil:
			return nil, fmt.Errorf("cannot read node %s: %w", n.name, err)
		default:
			w.node.Gone = !node.DeletionTimestamp.IsZero()
			w.node.Unschedulable = node.Spec.Unschedulable
		}
	}
	var pods corev1.PodList
	if err := c.opts.API.List(ctx, &pods, client.MatchingFields{dualpods.IndexNode: n.name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list the Pods of node %q: %w", n.name, err)
	}
	launchers := dualpods.NewLaunchers(c.opts.API)
	for i := range pods.Items {
		pod := n.newer(&pods.Items[i])
		config, is, err := launchers.Of(ctx, pod)
		switch {
		case err != nil:
			return nil, err
		case is:
			l := &launcherPod{view: c.opts.Views.View(string(pod.UID)), orphan: config == nil}
			if l.orphan {
				if l.replaced, err = launchers.ConfigExists(ctx, pod); err != nil {
					return nil, err
				}
			}
			l.began = l.view.Revision
			l.read(pod)
			w.launchers = append(w.launchers, l)
		case podmeta.AwaitsPlacement(pod) && !podmeta.Held(pod): // it runs nowhere before it is placed
		case podmeta.IsRequester(pod):
			w.pods[pod.UID] = pod
			read, problems := podmeta.ReadRequester(pod)
			w.asked[pod.UID] = requester{read, problems}
		}
	}
	slices.SortFunc(w.launchers, func(a, b *launcherPod) int {
		return cmp.Or(a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time), cmp.Compare(a.pod.UID, b.pod.UID))
	})
	n.forgetOthers(pods.Items)
	var asked sync.WaitGroup
	asked.Go(func() { c.askKubelet(ctx, n, w) })
	c.askRequesters(ctx, n, w)
	asked.Wait()
	return w, nil
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
func (c *Controller) askRequester(ctx context.Context, n *nodeWork, uid types.UID, address string) (*SPI, error) {
	proxy, err := c.opts.Requesters.Proxy(ctx, address)
	if err != nil {
		return nil, err
	}
	gpus, known := n.accelerators(uid, proxy.Instance)
	if !known {
		gpus, err = c.opts.Requesters.Accelerators(ctx, address)
		if refused(err) {
			return &SPI{Wrong: err.Error(), Proxy: proxy}, nil
		}
		if err != nil {
			return nil, err
		}
		n.noteAccelerators(uid, proxy.Instance, gpus)
	}
	return &SPI{GPUs: gpus, Proxy: proxy}, nil
}

func (w *world) adminAddress(uid types.UID) string {
	address := net.JoinHostPort(w.pods[uid].Status.PodIP, strconv.Itoa(int(w.asked[uid].AdminPort)))
	if w.asked[uid].TLS {
		return "https://" + address
	}
	return address
}

// claim is which GPUs a requester has: those that the kubelet gave it, where that
// is known, else those that it says it has.
func (w *world) claim(uid types.UID) (gpus []string, given bool) {
	if word := w.kubelet[uid]; len(word.GPUs) > 0 {
		return word.GPUs, true
	}
	if said := w.spi[uid]; said != nil {
		return said.GPUs, false
	}
	return nil, false
}

// rivals are other living requesters that have a GPU of this one's, or that are
// bound on it. What one says that it has counts for nothing against what the
// kubelet gave to another, and against who is bound only another record counts.
func (w *world) rivals(uid types.UID) (names []string) {
	if w.spi[uid] == nil {
		return nil
	}
	mine, given := w.claim(uid)
	_, bound := w.boundTo(uid)
	if bound != nil {
		mine = bound.GPUs
	}
	for other, pod := range w.pods {
		if other == uid || !pod.DeletionTimestamp.IsZero() || podmeta.Finished(pod) {
			continue
		}
		theirs, theirsGiven := w.claim(other)
		if given && !theirsGiven || bound != nil {
			theirs = nil
		}
		if _, record := w.boundTo(other); record != nil {
			theirs = slices.Concat(theirs, record.GPUs)
		}
		if slices.ContainsFunc(mine, func(g string) bool { return slices.Contains(theirs, g) }) {
			names = append(names, pod.Namespace+"/"+pod.Name)
		}
	}
	slices.Sort(names)
	return names
}

// boundTo finds the launcher that has the requester's record, and the record.
func (w *world) boundTo(uid types.UID) (*launcherPod, *podmeta.Binding) {
	for _, l := range w.launchers {
		for n := range l.bindings {
			if l.bindings[n].RequesterUID == uid {
				return l, &l.bindings[n]
			}
		}
	}
	return nil, nil
}

// swapping is a requester for which a swap is under way on a GPU of somebody
// else's record: what the launcher has been asked for last is to stay.
func (w *world) swapping(n *nodeWork, record *podmeta.Binding) string {
	for _, l := range w.launchers {
		for i := range l.bindings {
			b := &l.bindings[i]
			if b.RequesterUID == record.RequesterUID || !slices.ContainsFunc(b.GPUs, func(g string) bool { return slices.Contains(record.GPUs, g) }) {
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
func (w *world) subjects() []types.UID {
	var uids []types.UID
	for uid := range w.pods {
		uids = append(uids, uid)
	}
	for _, l := range w.launchers {
		for _, b := range l.bindings {
			if w.pods[b.RequesterUID] == nil && !slices.Contains(uids, b.RequesterUID) {
				uids = append(uids, b.RequesterUID)
			}
		}
	}
	// Those that leave make room for those that come; those that are bound may have
	// a model that is awake by now, and want little; then by age.
	slices.SortFunc(uids, func(a, b types.UID) int { return w.rank(a).compare(w.rank(b)) })
	return uids
}

type rank struct {
	turn  turn
	since time.Time
	uid   types.UID
}

// turn is which kind of requester is looked at first in a pass.
type turn int

const (
	leaves turn = iota
	isBound
	comes
)

func (w *world) rank(uid types.UID) rank {
	pod := w.pods[uid]
	if pod == nil {
		return rank{uid: uid}
	}
	r := rank{turn: comes, since: pod.CreationTimestamp.Time, uid: uid}
	if _, record := w.boundTo(uid); record != nil {
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
	case r.uid < other.uid:
		return -1
	case r.uid > other.uid:
		return 1
	}
	return 0
}

// started is when the requester program did.
func started(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == podmeta.ServingContainer && c.State.Running != nil {
			return c.State.Running.StartedAt.Time
		}
	}
	return time.Time{}
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

// running says that the requester program, or the launcher, runs.
func running(pod *corev1.Pod) bool { return containerRuns(pod, podmeta.ServingContainer) }

func containerRuns(pod *corev1.Pod, container string) bool {
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == container {
			return c.State.Running != nil && pod.Status.PodIP != ""
		}
	}
	return false
}
