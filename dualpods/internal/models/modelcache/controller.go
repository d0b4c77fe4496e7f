package modelcache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/models/modelvolume"
	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// IndexStore is the field that Pods are indexed by in the cache: whether they are
// launchers with a model store.
const IndexStore = "modelStore"

// IndexedStore is the value of that field; nil: the Pod is no such launcher.
func IndexedStore(pod *corev1.Pod) []string {
	if pod.Labels[podmeta.LabelModelNodeGroup] != "" && dualpods.IsLauncher(pod) {
		return []string{hasStore}
	}
	return nil
}

const hasStore = "yes"

// Launchers knows what the launchers say, by the UID of their Pods.
type Launchers interface {
	View(key string) nodeview.View
	Client(key string) Client
}

// Client asks one launcher, as client.Client does.
type Client interface {
	PullModel(ctx context.Context, request launcherapi.ModelRequest) (launcherapi.Model, error)
	RemoveModel(ctx context.Context, id, holder string) (launcherapi.Model, error)
}

// Options configure a [Controller].
type Options struct {
	// API reads from a cache, in which Pods are indexed by IndexStore and by
	// modelvolume.Index, and writes to the server.
	API       client.Client
	Launchers Launchers
	// Credentials reads what caches name of Namespace, the controller's own.
	Credentials sourcesecret.Reader
	Namespace   string
	Recorder    events.EventRecorder
	Again       func() // has the next pass made
	Now         func() time.Time
	Log         logr.Logger
}

// Controller keeps all ClusterModelCaches. One pass runs at a time.
type Controller struct {
	opts  Options
	ctx   context.Context //nolint:containedctx // the life of the controller and its calls
	end   context.CancelFunc
	calls sync.WaitGroup
	began time.Time // when this process began to lead; zero: it has not yet
	last  time.Time // when the last pass began
	// refused are the nodes that could not be labelled, and until when they are left alone.
	refused map[string]time.Time
	here    map[member]bool      // where the last pass has seen launchers
	left    map[member]time.Time // as World has it

	mu      sync.Mutex
	answers map[Call]Answer
}

// New makes a Controller.
func New(ctx context.Context, opts Options) *Controller {
	c := &Controller{opts: opts, refused: map[string]time.Time{}, left: map[member]time.Time{}, answers: map[Call]Answer{}}
	c.ctx, c.end = context.WithCancel(ctx)
	return c
}

// Close ends the calls to launchers, and waits for their end.
func (c *Controller) Close() {
	c.end()
	c.calls.Wait()
}

// Pauses: between two passes, for one looks at everything; after somebody else was
// faster; and while launchers have not been heard that may be in a moment, for which the
// first pass waits longestHear at most: by what they say its status is told.
const (
	passPause     = time.Second
	conflictPause = 100 * time.Millisecond
	hearPause     = 200 * time.Millisecond
	longestHear   = 5 * time.Second
)

// Reconcile makes a pass; what it is asked for does not matter.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	now := c.opts.Now()
	if c.began.IsZero() {
		c.began = now
	}
	if early := passPause - now.Sub(c.last); early > 0 && !c.last.IsZero() {
		return reconcile.Result{RequeueAfter: early}, nil
	}
	w, err := c.observe(ctx, now)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case c.last.IsZero() && w.unheard && now.Sub(c.began) < longestHear:
		return reconcile.Result{RequeueAfter: hearPause}, nil
	}
	c.last = now
	plan := Decide(w)
	var errs []error
	ready := map[string]bool{} // holders of caches that will be asked to clean up when they go
	for i := range w.Caches {
		cache := &w.Caches[i]
		kept, err := c.keep(ctx, cache, plan.Told[cache.Name])
		if err != nil {
			errs = append(errs, err)
		}
		ready[Holder(cache)] = kept
	}
	for _, call := range plan.Calls {
		if call.Remove != "" || ready[call.Holder] {
			c.ask(call, plan.Pulls[call.Holder])
		}
	}
	if again := c.label(ctx, w, plan); plan.Again.IsZero() || !again.IsZero() && again.Before(plan.Again) {
		plan.Again = again
	}
	result := reconcile.Result{}
	if !plan.Again.IsZero() {
		result.RequeueAfter = max(plan.Again.Sub(now), conflictPause)
	}
	err = errors.Join(append(errs, w.unread)...)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictPause}, nil // the cache is behind
	}
	return result, err
}

// observe reads what a decision rests on.
func (c *Controller) observe(ctx context.Context, now time.Time) (*World, error) {
	var caches v1alpha1.ClusterModelCacheList
	var groups v1alpha1.ModelCacheNodeGroupList
	var nodes corev1.NodeList
	var pods, mounting corev1.PodList
	err := errors.Join(
		c.opts.API.List(ctx, &caches), c.opts.API.List(ctx, &groups),
		c.opts.API.List(ctx, &nodes, client.UnsafeDisableDeepCopy),
		c.opts.API.List(ctx, &pods, client.MatchingFields{IndexStore: hasStore}, client.UnsafeDisableDeepCopy),
		c.opts.API.List(ctx, &mounting, client.MatchingFields{modelvolume.Index: modelvolume.NamesOne}, client.UnsafeDisableDeepCopy),
	)
	if err != nil {
		return nil, fmt.Errorf("cannot look at the model caches: %w", err)
	}
	w := &World{Now: now, Caches: caches.Items, Groups: map[string]*v1alpha1.ModelCacheNodeGroup{}, Nodes: map[string]Node{}, Mounted: modelvolume.UsersOf(mounting.Items)}
	for i := range groups.Items {
		w.Groups[groups.Items[i].Name] = &groups.Items[i]
	}
	for i := range nodes.Items {
		w.Nodes[nodes.Items[i].Name] = Node{Labels: nodes.Items[i].Labels, Down: Down(&nodes.Items[i])}
	}
	c.readCredentials(ctx, w)
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName == "" || podmeta.Finished(pod) || !pod.DeletionTimestamp.IsZero() {
			continue
		}
		view := c.opts.Launchers.View(string(pod.UID))
		why := view.WhyNoModels
		if why == "" && view.Models == nil {
			why = "it is starting"
		}
		w.Launchers = append(w.Launchers, Launcher{
			UID: string(pod.UID), Name: pod.Name, Node: pod.Spec.NodeName, Group: pod.Labels[podmeta.LabelModelNodeGroup], Path: pathOf(pod),
			Created: pod.CreationTimestamp.Time, Models: view.Models, Why: why, Lost: view.ModelsLost, Plain: !view.Certified,
		})
		node, known := w.Nodes[pod.Spec.NodeName]
		w.unheard = w.unheard || known && !node.Down && podmeta.Ready(pod) && !view.ModelsAsked
	}
	c.see(w)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(w)
	w.Answers = maps.Clone(c.answers)
	return w, nil
}

// see notes which groups have launchers where, and where none is any more.
func (c *Controller) see(w *World) {
	here := map[member]bool{}
	for _, l := range w.Launchers {
		here[member{l.Group, l.Node}] = true
	}
	for m := range c.here {
		if !here[m] {
			c.left[m] = w.Now
		}
	}
	maps.DeleteFunc(c.left, func(m member, since time.Time) bool { return here[m] || w.Now.Sub(since) >= replaceTime })
	c.here = here
	w.Began, w.Left = c.began, maps.Clone(c.left)
}

// readCredentials reads what caches name.
func (c *Controller) readCredentials(ctx context.Context, w *World) {
	w.Found = map[string]sourcesecret.Found{}
	for i := range w.Caches {
		cache := &w.Caches[i]
		if cache.Spec.Credentials == nil {
			continue
		}
		found, err := c.opts.Credentials.Read(ctx, namedBy(cache, c.opts.Namespace))
		w.Found[cache.Name], w.unread = found, errors.Join(w.unread, err)
	}
}

// pathOf is the folder of its node in which a launcher has its models.
func pathOf(pod *corev1.Pod) string {
	for _, v := range pod.Spec.Volumes {
		if v.Name == podmeta.VolumeModels && v.HostPath != nil {
			return v.HostPath.Path
		}
	}
	return ""
}

// Down says that a node is not ready, by what its conditions say.
func Down(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status != corev1.ConditionTrue
		}
	}
	return true
}

// keep writes the status of a cache, where that has changed, and its finalizer; once
// nothing is left of one that is being deleted, the finalizer goes. kept says that the
// cache has its finalizer, without which no launcher is asked to fetch anything.
func (c *Controller) keep(ctx context.Context, cache *v1alpha1.ClusterModelCache, told *Told) (kept bool, err error) {
	deleting := !cache.DeletionTimestamp.IsZero()
	has := controllerutil.ContainsFinalizer(cache, podmeta.FinalizerModelCache)
	switch {
	case deleting && !has:
		return false, nil
	case deleting && told.Clean || !deleting && !has:
		changed := cache.DeepCopy()
		if deleting {
			controllerutil.RemoveFinalizer(changed, podmeta.FinalizerModelCache)
		} else {
			controllerutil.AddFinalizer(changed, podmeta.FinalizerModelCache)
		}
		if err := c.opts.API.Patch(ctx, changed, client.MergeFromWithOptions(cache, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("cannot write the finalizer of ClusterModelCache %s: %w", cache.Name, err)
		}
		return !deleting, nil // the status comes with the event of this change
	}
	changed := cache.DeepCopy()
	told.show(changed)
	if equality.Semantic.DeepEqual(changed.Status, cache.Status) {
		return true, nil
	}
	if err := c.opts.API.Status().Update(ctx, changed); client.IgnoreNotFound(err) != nil {
		return true, fmt.Errorf("cannot write the status of ClusterModelCache %s: %w", cache.Name, err)
	}
	c.announce(cache, changed)
	return true, nil
}

// announce makes Events of what somebody may want to act on.
func (c *Controller) announce(before, now *v1alpha1.ClusterModelCache) {
	for _, kind := range []string{v1alpha1.ConditionAvailable, v1alpha1.ConditionDegraded, v1alpha1.ConditionDeletionBlocked, v1alpha1.ConditionCredentialsAccepted, v1alpha1.ConditionMountable} {
		was, is := meta.FindStatusCondition(before.Status.Conditions, kind), meta.FindStatusCondition(now.Status.Conditions, kind)
		if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason {
			continue
		}
		if kind == v1alpha1.ConditionDegraded && is.Reason == v1alpha1.ReasonAccessDenied && now.Spec.Credentials != nil {
			continue // that of the credentials says so
		}
		switch {
		case kind == v1alpha1.ConditionCredentialsAccepted:
			if is.Status == metav1.ConditionFalse {
				c.opts.Recorder.Eventf(now, nil, corev1.EventTypeWarning, is.Reason, "ReadCredentials", "%s", is.Message)
			}
		case kind == v1alpha1.ConditionMountable:
			if is.Status == metav1.ConditionFalse {
				c.opts.Recorder.Eventf(now, nil, corev1.EventTypeWarning, is.Reason, "MountModel", "%s", is.Message)
			}
		case kind == v1alpha1.ConditionAvailable && is.Status == metav1.ConditionTrue:
			c.opts.Recorder.Eventf(now, nil, corev1.EventTypeNormal, is.Reason, "Keep", "%d nodes have the model", now.Status.Ready)
		case kind != v1alpha1.ConditionAvailable && is.Status == metav1.ConditionTrue, is.Reason == v1alpha1.ReasonNodeGroupMissing:
			c.opts.Recorder.Eventf(now, nil, corev1.EventTypeWarning, is.Reason, "Keep", "%s", is.Message)
		}
	}
}
