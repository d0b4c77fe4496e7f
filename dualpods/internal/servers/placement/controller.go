package placement

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Index is the field that Pods are indexed by in the cache for this package.
const Index = "placement"

// The values of that field.
const (
	gated    = "gated"    // Pods that carry the gate
	promised = "promised" // requesters from which the gate was taken
	provider = "provider" // launchers that are on a node
)

// Indexed gives the values of that field.
func Indexed(pod *corev1.Pod) []string {
	over := podmeta.Finished(pod) || !pod.DeletionTimestamp.IsZero()
	switch {
	case podmeta.AwaitsPlacement(pod) && !over: // also one that is no requester: nobody else takes the gate off
		return []string{gated}
	case dualpods.IsLauncher(pod):
		if pod.Spec.NodeName == "" {
			return nil
		}
		return []string{provider}
	case over:
		return nil
	case !podmeta.IsRequester(pod):
		return nil
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
	// Called gives ids of the versions in the launchers' stores that a name may mean.
	Called(name modelref.Name) []string
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
	refused map[types.UID]refusal           // of Pods that could not be written
	seen    map[types.UID]time.Time         // when this process saw the gate of a Pod first
}

// refusal is what became of a write that failed.
type refusal struct {
	until time.Time // then the Pod is looked at again
	// may is what was to be written and may have been: the server has not refused it.
	// The zero value: it has.
	may podmeta.Placement
}

// New makes a Controller.
func New(opts Options) *Controller {
	return &Controller{opts: opts, written: map[types.UID]podmeta.Placement{}, refused: map[types.UID]refusal{}, seen: map[types.UID]time.Time{}}
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
			failed := refusal{until: c.opts.Now().Add(refusedPause)}
			if dualpods.AnswerLost(errs[i]) {
				failed.may = placement(&let[i], w.Now)
			}
			c.refused[let[i].UID] = failed
			c.opts.Recorder.Eventf(pods[let[i].UID], nil, corev1.EventTypeWarning, "NotPlaced", "Place", "%s", dualpods.Truncate(errs[i].Error(), maxWhy))
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
	return podmeta.Placement{Launcher: d.Sleeper.Launcher, Instance: d.Sleeper.Instance, Why: dualpods.Truncate(d.Why, maxWhy), Since: now}
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
		c.opts.Recorder.Eventf(changed, nil, corev1.EventTypeNormal, "Placed", "Place", "%s", dualpods.Truncate(d.Why, maxWhy))
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
