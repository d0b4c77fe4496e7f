package placement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/binding"
	"hotseat.dev/hotseat/dualpods/internal/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/nominal"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Index is the field that Pods are indexed by in the cache for this package.
const Index = "placement"

// The values of that field.
const (
	gated    = "gated"    // requesters that carry the gate
	promised = "promised" // requesters from which the gate was taken
	provider = "provider" // launchers that are on a node
)

// Indexed gives the values of that field.
func Indexed(pod *corev1.Pod) []string {
	switch {
	case binding.IsLauncher(pod):
		if pod.Spec.NodeName == "" {
			return nil
		}
		return []string{provider}
	case !podmeta.IsRequester(pod) || podmeta.Finished(pod) || !pod.DeletionTimestamp.IsZero():
		return nil
	case podmeta.AwaitsPlacement(pod):
		return []string{gated}
	}
	if _, ok := podmeta.ReadPlacement(pod); ok {
		return []string{promised}
	}
	return nil
}

// Awaits says that a Pod waits for this package.
func Awaits(pod *corev1.Pod) bool { return slices.Contains(Indexed(pod), gated) }

// Views knows what the launchers say, by the UID of their Pods.
type Views interface {
	View(key string) nodeview.View
}

// Options configure a [Controller].
type Options struct {
	// API reads from a cache, in which Pods are indexed by Index, and writes to the
	// server.
	API      client.Client
	Views    Views
	Recorder events.EventRecorder
	Caches   bool // ClusterModelCaches are looked at
	Now      func() time.Time
}

// Controller places all requesters that carry the gate. One pass runs at a time.
type Controller struct {
	opts    Options
	began   time.Time                       // when this process began to lead; zero: it has not yet
	written map[types.UID]podmeta.Placement // of Pods whose gate was taken off, which the cache does not have yet
	refused map[types.UID]time.Time         // until then Pods are left alone that could not be written
}

// New makes a Controller.
func New(opts Options) *Controller {
	return &Controller{opts: opts, written: map[types.UID]podmeta.Placement{}, refused: map[types.UID]time.Time{}}
}

// atOnce is how many Pods are written at the same time.
const atOnce = 32

// Pauses until a Pod is looked at again that could not be written: because somebody
// else was faster, and else. writeTime bounds a write.
const (
	retryPause   = 50 * time.Millisecond
	refusedPause = 10 * time.Second
	writeTime    = 2 * time.Second
)

// Reconcile makes a pass; what it is asked for does not matter.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if c.began.IsZero() {
		c.began = c.opts.Now()
	}
	w, pods, err := c.observe(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var result reconcile.Result
	if len(c.refused) > 0 {
		result.RequeueAfter = refusedPause
	}
	var let []Decision
	for _, d := range Decide(w) {
		if d.Wait.IsZero() {
			let = append(let, d)
			continue
		}
		if wait := max(min(d.Wait.Sub(w.Now), waitPause), time.Millisecond); result.RequeueAfter == 0 || wait < result.RequeueAfter {
			result.RequeueAfter = wait
		}
	}
	errs := make([]error, len(let))
	var writing sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for i := range let {
		turns <- struct{}{}
		writing.Go(func() { errs[i] = c.letGo(ctx, pods[let[i].UID], &let[i]); <-turns })
	}
	writing.Wait()
	for i := range let {
		if errs[i] == nil {
			c.written[let[i].UID] = placement(&let[i], w.Now)
			continue
		}
		pause := retryPause // the cache is behind
		if !apierrors.IsConflict(errs[i]) {
			pause = refusedPause
			c.refused[let[i].UID] = c.opts.Now().Add(refusedPause)
			c.opts.Recorder.Eventf(pods[let[i].UID], nil, corev1.EventTypeWarning, "NotPlaced", "Place", "%s", binding.Shortened(errs[i].Error(), maxWhy))
		}
		if result.RequeueAfter == 0 || pause < result.RequeueAfter {
			result.RequeueAfter = pause
		}
	}
	return result, nil
}

// waitPause is how often launchers are looked at that have not been heard.
const waitPause = 100 * time.Millisecond

// maxWhy bounds what is told of a Pod, in bytes.
const maxWhy = 1024

func placement(d *Decision, now time.Time) podmeta.Placement {
	return podmeta.Placement{Launcher: d.Sleeper.Launcher, Instance: d.Sleeper.Instance, Why: binding.Shortened(d.Why, maxWhy), Since: now}
}

// letGo takes the gate off a Pod, after the preferences have been added, by one
// write: a Pod without the gate takes no more (scheduling directives of gated Pods in
// https://kubernetes.io/docs/concepts/scheduling-eviction/pod-scheduling-readiness/).
func (c *Controller) letGo(ctx context.Context, pod *corev1.Pod, d *Decision) error {
	changed := pod.DeepCopy()
	changed.Spec.SchedulingGates = slices.DeleteFunc(changed.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == podmeta.SchedulingGate })
	prefer(&changed.Spec, d.Prefer)
	demand(&changed.Spec, d.Require)
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[podmeta.AnnotationPlacement] = placement(d, c.opts.Now()).Encode()
	ctx, stop := context.WithTimeout(ctx, writeTime)
	defer stop()
	err := c.opts.API.Patch(ctx, changed, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return err
	case err != nil:
		return fmt.Errorf("cannot take the gate %s off Pod %s/%s: %w", podmeta.SchedulingGate, pod.Namespace, pod.Name, err)
	}
	if len(d.Prefer) > 0 || d.Require != "" {
		c.opts.Recorder.Eventf(changed, nil, corev1.EventTypeNormal, "Placed", "Place", "%s", binding.Shortened(d.Why, maxWhy))
	}
	return nil
}

// prefer adds preferences for nodes to those that a Pod has.
func prefer(spec *corev1.PodSpec, all []Preference) {
	if len(all) == 0 {
		return
	}
	terms := &nodeAffinity(spec).PreferredDuringSchedulingIgnoredDuringExecution
	for _, p := range all {
		*terms = append(*terms, corev1.PreferredSchedulingTerm{Weight: p.Weight, Preference: corev1.NodeSelectorTerm{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{p.Node}}},
		}})
	}
}

// demand has a Pod run on nodes alone that have a label: a further demand of each
// alternative that the Pod gives, which is all that may be changed of these. An empty
// alternative fits no node, and is left as it is.
func demand(spec *corev1.PodSpec, label string) {
	if label == "" {
		return
	}
	required := &nodeAffinity(spec).RequiredDuringSchedulingIgnoredDuringExecution
	there := *required != nil
	if !there {
		*required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	for i := range (*required).NodeSelectorTerms {
		term := &(*required).NodeSelectorTerms[i]
		if there && len(term.MatchExpressions)+len(term.MatchFields) == 0 {
			continue
		}
		terms := &term.MatchExpressions
		*terms = append(*terms, corev1.NodeSelectorRequirement{Key: label, Operator: corev1.NodeSelectorOpIn, Values: []string{podmeta.ModelReady}})
	}
}

func nodeAffinity(spec *corev1.PodSpec) *corev1.NodeAffinity {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	return spec.Affinity.NodeAffinity
}

// observe reads what a decision rests on.
func (c *Controller) observe(ctx context.Context) (*World, map[types.UID]*corev1.Pod, error) {
	w := &World{Now: c.opts.Now(), Began: c.began, Taken: map[string]map[string]bool{}, Promised: map[Sleeper]bool{}}
	lists := map[string]*corev1.PodList{gated: {}, promised: {}, provider: {}}
	pods := map[types.UID]*corev1.Pod{}
	if err := c.list(ctx, lists[gated], gated); err != nil {
		return nil, nil, err
	}
	still := map[types.UID]bool{}
	for i := range lists[gated].Items {
		pod := &lists[gated].Items[i]
		still[pod.UID] = true
		if _, done := c.written[pod.UID]; !done && len(pod.Spec.SchedulingGates) == 1 && !c.refused[pod.UID].After(w.Now) {
			pods[pod.UID] = pod
			w.Waiting = append(w.Waiting, c.requester(ctx, pod))
		}
	}
	for _, p := range c.written { // the cache may have none of them yet
		w.promise(p)
	}
	maps.DeleteFunc(c.written, func(uid types.UID, _ podmeta.Placement) bool { return !still[uid] })
	maps.DeleteFunc(c.refused, func(uid types.UID, _ time.Time) bool { return !still[uid] })
	if len(w.Waiting) == 0 {
		return w, nil, nil
	}
	if err := errors.Join(c.list(ctx, lists[promised], promised), c.list(ctx, lists[provider], provider)); err != nil {
		return nil, nil, err
	}
	closed, err := c.closed(ctx)
	if err == nil && c.opts.Caches {
		w.Caches, err = c.caches(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	bound := map[types.UID]bool{}
	for i := range lists[provider].Items {
		c.launcher(w, &lists[provider].Items[i], bound, closed)
	}
	for i := range lists[promised].Items {
		pod := &lists[promised].Items[i]
		p, _ := podmeta.ReadPlacement(pod)
		if !bound[pod.UID] && w.mayHave(pod, p) {
			w.promise(p)
		}
	}
	return w, pods, nil
}

func (c *Controller) list(ctx context.Context, into *corev1.PodList, value string) error {
	if err := c.opts.API.List(ctx, into, client.MatchingFields{Index: value}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("cannot list the Pods that placement looks at: %w", err)
	}
	return nil
}

// closed are the nodes that take no more Pods.
func (c *Controller) closed(ctx context.Context) (map[string]bool, error) {
	var nodes corev1.NodeList
	if err := c.opts.API.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list the nodes: %w", err)
	}
	closed := map[string]bool{}
	for i := range nodes.Items {
		closed[nodes.Items[i].Name] = nodes.Items[i].Spec.Unschedulable
	}
	return closed, nil
}

// caches are the ClusterModelCaches that are not being deleted, the oldest first.
func (c *Controller) caches(ctx context.Context) (all []Cache, err error) {
	var list v1alpha1.ClusterModelCacheList
	if err := c.opts.API.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list the ClusterModelCaches: %w", err)
	}
	items := slices.Clone(list.Items)
	slices.SortFunc(items, func(a, b v1alpha1.ClusterModelCache) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for i := range items {
		o := &items[i]
		if !o.DeletionTimestamp.IsZero() {
			continue
		}
		source := launcherapi.Model{URI: o.Spec.Source.URI, Ref: cmp.Or(o.Spec.Source.Revision, "main"), Revision: o.Status.Revision}
		all = append(all, Cache{Name: o.Name, Model: source, Scheduling: o.Spec.Scheduling})
	}
	return all, nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// promiseTime is how long a sleeper is kept for a requester that was let go for it and
// is not bound: the scheduler may have had to take another node, or none.
const promiseTime = 30 * time.Second

func (w *World) promise(p podmeta.Placement) {
	if ago := w.Now.Sub(p.Since); p.Instance != "" && ago < promiseTime && ago > -promiseTime {
		w.Promised[Sleeper{p.Launcher, p.Instance}] = true
	}
}

// mayHave says that a Pod may still get the sleeper that it was let go for: a launcher
// of its namespace has that, and the Pod is on no other node.
func (w *World) mayHave(pod *corev1.Pod, p podmeta.Placement) bool {
	return slices.ContainsFunc(w.Launchers, func(l Launcher) bool {
		return l.UID == p.Launcher && l.Namespace == pod.Namespace && (pod.Spec.NodeName == "" || pod.Spec.NodeName == l.Node)
	})
}

// requester reads one that carries the gate.
func (c *Controller) requester(ctx context.Context, pod *corev1.Pod) Requester {
	r := Requester{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Created: pod.CreationTimestamp.Time}
	read, problems := podmeta.ReadRequester(pod)
	if len(problems) == 0 && read.Input == podmeta.InputPatch {
		r.Form, problems = nominal.FromPatch(pod, read.Patch)
	} else if len(problems) == 0 {
		var config v1alpha1.InferenceServerConfig
		if err := c.opts.API.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: read.ConfigName}, &config); err != nil {
			r.Lacks = "InferenceServerConfig " + read.ConfigName // it may come in a moment
			problems = []podmeta.Problem{{
				Kind: podmeta.Invalid, Field: "metadata.annotations[" + podmeta.AnnotationInferenceServerConfig + "]",
				Message: "cannot read the InferenceServerConfig " + read.ConfigName + ": " + err.Error(),
			}}
		} else {
			r.Form, problems = nominal.FromConfig(pod, &config)
		}
	}
	r.Problems = problems
	return r
}

// launcher reads one, with what is taken of the GPUs of its node.
func (c *Controller) launcher(w *World, pod *corev1.Pod, bound map[types.UID]bool, closed map[string]bool) {
	taken := w.Taken[pod.Spec.NodeName]
	if taken == nil {
		taken = map[string]bool{}
		w.Taken[pod.Spec.NodeName] = taken
	}
	take := func(gpus []string) {
		for _, uuid := range gpus {
			taken[uuid] = true
		}
	}
	bindings, _ := podmeta.ReadBindings(pod)
	for _, b := range bindings {
		bound[b.RequesterUID] = true
		take(b.GPUs)
	}
	view := c.opts.Views.View(string(pod.UID))
	for _, i := range view.Instances {
		if state := launcher.State(i.State); state != launcher.Sleeping && !state.Ended() {
			take(i.GPUUUIDs)
		}
	}
	if podmeta.Finished(pod) || podmeta.ServerEnded(pod) || !pod.DeletionTimestamp.IsZero() {
		return
	}
	l := Launcher{
		UID: pod.UID, Name: pod.Name, Namespace: pod.Namespace, Node: pod.Spec.NodeName, Config: pod.Labels[podmeta.LabelLauncherConfig],
		Spec: &pod.Spec, Runs: podmeta.Ready(pod), Closed: closed[pod.Spec.NodeName], Since: view.Lost, Silent: !view.Connected, Instances: view.Instances, Models: view.Models,
	}
	if l.Since.IsZero() { // this process listens to it in a moment
		l.Since = latest(c.began, pod.CreationTimestamp.Time)
	}
	if container := podmeta.Container(&pod.Spec, podmeta.ServingContainer); container != nil {
		l.Image = container.Image
	}
	w.Launchers = append(w.Launchers, l)
}
