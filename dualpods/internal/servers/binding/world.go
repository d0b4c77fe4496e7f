package binding

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/launcherapi"
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
	recalled  map[types.UID]bool      // of spi: said in an earlier pass
}

// requester is a requester Pod as read.
type requester struct {
	podmeta.Requester
	problems []podmeta.Problem
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

// look reads the View of a launcher with the instances that one decision needs: those of the
// given ids, the second of which may be empty, and those whose records cannot be read.
func (c *Controller) look(l *launcherPod, id, next string) nodeview.View {
	if len(l.damaged) == 0 && next == "" {
		return c.opts.Providers.One(l.key(), id)
	}
	return c.opts.Providers.Pick(l.key(), func(other string, _ launcherapi.Instance) bool {
		return other == id || other == next || l.lost(other)
	})
}

// gather reads everything about a node, of name "" what is on none yet. The Pods
// are the cache's own: whoever changes one changes a copy.
func (c *Controller) gather(ctx context.Context, n *nodeWork) (*world, error) {
	w := &world{now: c.opts.Now(), node: decide.Node{Name: n.name}, pods: map[types.UID]*corev1.Pod{}, spi: map[types.UID]*decide.SPI{}, asked: map[types.UID]requester{}, silent: map[types.UID]time.Time{}, refusing: map[types.UID]bool{}, recalled: map[types.UID]bool{}}
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
			l.view = c.look(l, "", "")
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

// newer is the Pod as it was read, or as this controller wrote it where the
// cache does not have that yet.
func (n *nodeWork) newer(pod *corev1.Pod) *corev1.Pod {
	own, ok := n.own[pod.UID]
	if !ok {
		return pod
	}
	if older(pod.ResourceVersion, own.ResourceVersion) {
		return own
	}
	delete(n.own, pod.UID)
	return pod
}

// older compares resource versions of one kind of object, which are numbers that
// grow (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions).
func older(a, b string) bool { return len(a) < len(b) || len(a) == len(b) && a < b }

// forgetOthers forgets Pods that are gone.
func (n *nodeWork) forgetOthers(pods []corev1.Pod) {
	there := map[types.UID]bool{}
	for i := range pods {
		there[pods[i].UID] = true
	}
	gone := func(uid types.UID) bool { return !there[uid] }
	maps.DeleteFunc(n.own, func(uid types.UID, _ *corev1.Pod) bool { return gone(uid) })
	maps.DeleteFunc(n.forms, func(uid types.UID, _ readForm) bool { return gone(uid) })
	maps.DeleteFunc(n.answers, func(uid types.UID, _ answer) bool { return gone(uid) })
	maps.DeleteFunc(n.told, func(uid types.UID, _ decide.Telling) bool { return gone(uid) })
	n.repeats.forget(gone)
	maps.DeleteFunc(n.assigned, func(uid types.UID, _ string) bool { return gone(uid) })
	n.gpus.Forget(gone)
	maps.DeleteFunc(n.damaged, func(uid types.UID, _ string) bool { return gone(uid) })
	maps.DeleteFunc(n.mute, func(uid types.UID, _ bool) bool { return gone(uid) })
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.quiet, func(uid types.UID, _ silence) bool { return gone(uid) })
}

// forgetServes forgets what was noted of requesters that are gone.
func (c *Controller) forgetServes(n *nodeWork, w *world) {
	for uid := range n.serves {
		if w.pods[uid] == nil {
			delete(n.serves, uid)
			c.opts.Endpoints.Forget(uid)
		}
	}
}

// isAgent says that a Pod is the agent of its node. Only who may make Pods in the controller's
// namespace could make one that looks like it, and has no certificate of agents.
func (c *Controller) isAgent(pod *corev1.Pod) bool {
	return pod.Namespace == c.opts.AgentNamespace && podmeta.IsAgent(pod)
}

// pod returns the Pod of a requester; nil: it is gone.
func (w *world) pod(id dualpods.Identity) *corev1.Pod {
	if pod := w.pods[id.UID]; pod != nil && pod.Namespace == id.Namespace {
		return pod
	}
	return nil
}

// launcher returns the launcher with that UID; nil: there is none.
func (w *world) launcher(uid types.UID) *launcherPod {
	for _, l := range w.launchers {
		if l.pod.UID == uid {
			return l
		}
	}
	return nil
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

// runs says that the program of a launcher runs.
func (l *launcherPod) runs() bool { return podmeta.ContainerRuns(l.pod, podmeta.ServingContainer) }

// running says that the program of a requester runs.
func running(pod *corev1.Pod) bool { return podmeta.ProgramOf(pod).Runs() }
