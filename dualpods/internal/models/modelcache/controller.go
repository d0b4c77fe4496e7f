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

// IndexStore is the cache's index of Pods that are launchers with a model store.
const IndexStore = "modelStore"

// IndexedStore returns a Pod's values in the index IndexStore.
func IndexedStore(pod *corev1.Pod) []string {
	if pod.Labels[podmeta.LabelModelNodeGroup] != "" && dualpods.LooksLike(pod) == dualpods.KindLauncher {
		return []string{hasStore}
	}
	return nil
}

const hasStore = "yes"

// Launchers returns the views and clients of launchers, by the UID of their Pods.
type Launchers interface {
	Pick(key string, keep func(id string, i launcherapi.Instance) bool) nodeview.View
	Client(key string) Client
}

// Client calls one launcher. The client of the launcher's API implements it.
type Client interface {
	PullModel(ctx context.Context, request launcherapi.ModelRequest) (launcherapi.Model, error)
	RemoveModel(ctx context.Context, id, holder string) (launcherapi.Model, error)
}

// Options configure a [Controller].
type Options struct {
	// API reads from a cache and writes to the API server. The cache indexes Pods by
	// IndexStore and by modelvolume.Index.
	API       client.Client
	Launchers Launchers
	// Credentials reads the Secrets and ServiceAccounts that caches name, in Namespace.
	Credentials sourcesecret.Reader
	Namespace   string
	Recorder    events.EventRecorder
	Again       func() // requests another pass
	Now         func() time.Time
	Log         logr.Logger
}

// Controller reconciles all ClusterModelCaches. It runs one pass at a time.
type Controller struct {
	opts         Options
	ctx          context.Context //nolint:containedctx // the life of the controller and its calls
	end          context.CancelFunc
	calls        sync.WaitGroup
	leadingSince time.Time // when this process became the leader; zero: it is not yet
	lastPass     time.Time // when the last pass began
	// failedNodes are the nodes whose labels could not be written, and when to try again.
	failedNodes map[string]time.Time
	lastMembers map[member]bool      // members with a launcher in the last pass
	departed    map[member]time.Time // see World.Departed

	mu      sync.Mutex
	answers map[Call]Answer
}

// New makes a Controller.
func New(ctx context.Context, opts Options) *Controller {
	c := &Controller{opts: opts, failedNodes: map[string]time.Time{}, departed: map[member]time.Time{}, answers: map[Call]Answer{}}
	c.ctx, c.end = context.WithCancel(ctx)
	return c
}

// Close cancels the calls to launchers and waits for their end.
func (c *Controller) Close() {
	c.end()
	c.calls.Wait()
}

// minPassInterval is the shortest period between passes, since a pass reads everything.
// conflictPause is the pause after a write conflict. The first pass waits up to maxUnheardWait
// for launchers that were not heard yet, because the status depends on their reports; it
// checks every unheardRecheck.
const (
	minPassInterval = time.Second
	conflictPause   = 100 * time.Millisecond
	unheardRecheck  = 200 * time.Millisecond
	maxUnheardWait  = 5 * time.Second
)

// Reconcile runs a pass over all caches; it ignores the request.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	now := c.opts.Now()
	if c.leadingSince.IsZero() {
		c.leadingSince = now
	}
	if early := minPassInterval - now.Sub(c.lastPass); early > 0 && !c.lastPass.IsZero() {
		return reconcile.Result{RequeueAfter: early}, nil
	}
	w, err := c.observe(ctx, now)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case c.lastPass.IsZero() && w.launcherUnheard && now.Sub(c.leadingSince) < maxUnheardWait:
		return reconcile.Result{RequeueAfter: unheardRecheck}, nil
	}
	c.lastPass = now
	plan := Decide(w)
	var errs []error
	hasFinalizer := map[string]bool{} // holders whose cache has its finalizer
	for i := range w.Caches {
		cache := &w.Caches[i]
		kept, err := c.writeCache(ctx, cache, plan.Reports[cache.Name])
		if err != nil {
			errs = append(errs, err)
		}
		hasFinalizer[Holder(cache)] = kept
	}
	for _, call := range plan.Calls {
		if call.Remove != "" || hasFinalizer[call.Holder] {
			c.startCall(call, plan.Pulls[call.Holder])
		}
	}
	if again := c.writeLabels(ctx, w, plan); plan.Again.IsZero() || !again.IsZero() && again.Before(plan.Again) {
		plan.Again = again
	}
	result := reconcile.Result{}
	if !plan.Again.IsZero() {
		result.RequeueAfter = max(plan.Again.Sub(now), conflictPause)
	}
	err = errors.Join(append(errs, w.readErr)...)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictPause}, nil // the cache is stale
	}
	return result, err
}

// observe reads the World.
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
		return nil, fmt.Errorf("cannot read the model caches: %w", err)
	}
	w := &World{Now: now, Caches: caches.Items, Groups: map[string]*v1alpha1.ModelCacheNodeGroup{}, Nodes: map[string]Node{}, Mounted: modelvolume.UsersOf(mounting.Items)}
	for i := range groups.Items {
		w.Groups[groups.Items[i].Name] = &groups.Items[i]
	}
	for i := range nodes.Items {
		w.Nodes[nodes.Items[i].Name] = Node{Labels: nodes.Items[i].Labels, Down: Down(&nodes.Items[i])}
	}
	c.readCredentials(ctx, w)
	if err := c.addLaunchers(ctx, w, pods.Items); err != nil {
		return nil, err
	}
	c.trackMembers(w)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.updateAnswers(w)
	w.Answers = maps.Clone(c.answers)
	return w, nil
}

// addLaunchers adds to the World the launchers with a store among these Pods.
func (c *Controller) addLaunchers(ctx context.Context, w *World, pods []corev1.Pod) error {
	launchers := dualpods.NewLaunchers(c.opts.API)
	for i := range pods {
		pod := &pods[i]
		if pod.Spec.NodeName == "" || dualpods.ProviderOf(pod, 0).Stage == dualpods.Leaving || pathOf(pod) == "" {
			continue
		}
		kind, config, err := launchers.KindOf(ctx, pod)
		if err != nil {
			return err
		}
		if !kind.IsLauncher() {
			continue
		}
		view := c.opts.Launchers.Pick(string(pod.UID), nil)
		why := view.WhyNoModels
		if why == "" && view.Models == nil {
			why = "it is starting"
		}
		group := pod.Labels[podmeta.LabelModelNodeGroup]
		w.Launchers = append(w.Launchers, Launcher{
			UID: string(pod.UID), Name: pod.Name, Node: pod.Spec.NodeName, Group: group, Path: pathOf(pod),
			Created: pod.CreationTimestamp.Time, Models: view.Models, Why: why, Lost: view.ModelsLost, Plain: !view.Certified,
			Untrusted: untrusted(config, w.Groups[group], group),
		})
		node, known := w.Nodes[pod.Spec.NodeName]
		w.launcherUnheard = w.launcherUnheard || known && !node.Down && podmeta.ContainerRuns(pod, podmeta.ServingContainer) && !view.ModelsAsked
	}
	return nil
}

// trackMembers records on which nodes each group has launchers, and which of them lost the last one.
func (c *Controller) trackMembers(w *World) {
	here := map[member]bool{}
	for _, l := range w.Launchers {
		here[member{l.Group, l.Node}] = true
	}
	for m := range c.lastMembers {
		if !here[m] {
			c.departed[m] = w.Now
		}
	}
	maps.DeleteFunc(c.departed, func(m member, since time.Time) bool { return here[m] || w.Now.Sub(since) >= replacementTime })
	c.lastMembers = here
	w.LeadingSince, w.Departed = c.leadingSince, maps.Clone(c.departed)
}

// readCredentials reads the credentials that caches name.
func (c *Controller) readCredentials(ctx context.Context, w *World) {
	w.Found = map[string]sourcesecret.Found{}
	for i := range w.Caches {
		cache := &w.Caches[i]
		if cache.Spec.Credentials == nil {
			continue
		}
		found, err := c.opts.Credentials.Read(ctx, namedBy(cache, c.opts.Namespace))
		w.Found[cache.Name], w.readErr = found, errors.Join(w.readErr, err)
	}
}

// pathOf returns the folder of the node with a launcher's model store.
func pathOf(pod *corev1.Pod) string {
	for _, v := range pod.Spec.Volumes {
		if v.Name == podmeta.VolumeModels && v.HostPath != nil {
			return v.HostPath.Path
		}
	}
	return ""
}

// Down reports whether a node's conditions say that it is not ready.
func Down(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status != corev1.ConditionTrue
		}
	}
	return true
}

// writeCache writes the status of a cache when it has changed, and its finalizer. It removes the
// finalizer of a deleted cache when no launcher has anything for it. kept reports whether
// the cache has its finalizer. Without the finalizer the controller calls no launcher to fetch.
func (c *Controller) writeCache(ctx context.Context, cache *v1alpha1.ClusterModelCache, report *Report) (kept bool, err error) {
	deleting := !cache.DeletionTimestamp.IsZero()
	has := controllerutil.ContainsFinalizer(cache, podmeta.FinalizerModelCache)
	switch {
	case deleting && !has:
		return false, nil
	case deleting && report.NothingLeft || !deleting && !has:
		changed := cache.DeepCopy()
		if deleting {
			controllerutil.RemoveFinalizer(changed, podmeta.FinalizerModelCache)
		} else {
			controllerutil.AddFinalizer(changed, podmeta.FinalizerModelCache)
		}
		if err := c.opts.API.Patch(ctx, changed, client.MergeFromWithOptions(cache, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("cannot write the finalizer of ClusterModelCache %s: %w", cache.Name, err)
		}
		return !deleting, nil // the event of this write causes the pass that writes the status
	}
	changed := cache.DeepCopy()
	report.writeStatus(changed)
	if equality.Semantic.DeepEqual(changed.Status, cache.Status) {
		return true, nil
	}
	if err := c.opts.API.Status().Update(ctx, changed); client.IgnoreNotFound(err) != nil {
		return true, fmt.Errorf("cannot write the status of ClusterModelCache %s: %w", cache.Name, err)
	}
	c.emitEvents(cache, changed)
	return true, nil
}

// emitEvents emits Events for changes that may need action.
func (c *Controller) emitEvents(before, now *v1alpha1.ClusterModelCache) {
	for _, kind := range []string{v1alpha1.ConditionAvailable, v1alpha1.ConditionDegraded, v1alpha1.ConditionDeletionBlocked, v1alpha1.ConditionCredentialsAccepted, v1alpha1.ConditionMountable} {
		was, is := meta.FindStatusCondition(before.Status.Conditions, kind), meta.FindStatusCondition(now.Status.Conditions, kind)
		if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason {
			continue
		}
		if kind == v1alpha1.ConditionDegraded && is.Reason == v1alpha1.ReasonAccessDenied && now.Spec.Credentials != nil {
			continue // the Event of the credentials says so
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
