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
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Index is the cache's index of the Pods that this package handles.
const Index = "placement"

// Values in the index.
const (
	gated    = "gated"    // Pods that carry the gate
	promised = "promised" // requesters whose gate was removed
	provider = "provider" // launchers that are scheduled to a node
)

// Indexed returns a Pod's values in the index.
func Indexed(pod *corev1.Pod) []string {
	kind, over := dualpods.LooksLike(pod), dualpods.RequesterOf(pod).IsOver()
	switch {
	case podmeta.AwaitsPlacement(pod) && !over: // also a Pod that is no requester: only this controller removes the gate
		return []string{gated}
	case kind == dualpods.KindLauncher && pod.Spec.NodeName != "":
		return []string{provider}
	case kind == dualpods.KindRequester && !over:
		if _, ok := podmeta.ReadPlacement(pod); ok {
			return []string{promised}
		}
	}
	return nil
}

// Awaits reports whether a Pod waits for its gate to be removed.
func Awaits(pod *corev1.Pod) bool { return slices.Contains(Indexed(pod), gated) }

// Views returns what the launchers report, by the UID of their Pods.
type Views interface {
	Pick(key string, keep func(id string, i launcherapi.Instance) bool) nodeview.View
	// CandidateIDs returns ids of the stored versions that a name may mean.
	CandidateIDs(name modelref.Name) []string
}

// Options configure a [Controller].
type Options struct {
	// API reads from a cache with the index Index, and writes to the API server.
	API      client.Client
	Views    Views
	Recorder events.EventRecorder
	Caches   bool // ClusterModelCaches count
	Now      func() time.Time
}

// Controller places the requesters that carry the gate. It runs one pass at a time.
type Controller struct {
	opts         Options
	leadingSince time.Time                       // when this process became the leader; zero: it is not yet
	written      map[types.UID]podmeta.Placement // placements of Pods whose gate the cache still shows
	failed       map[types.UID]failedWrite       // failed writes
	firstSeen    map[types.UID]time.Time         // when this process first saw a Pod's gate
}

// failedWrite is a failed write.
type failedWrite struct {
	until time.Time // when to try again
	// maybeWritten is the placement that the failed write may have stored. It is zero when the API
	// server failed the write.
	maybeWritten podmeta.Placement
}

// New makes a Controller.
func New(opts Options) *Controller {
	return &Controller{opts: opts, written: map[types.UID]podmeta.Placement{}, failed: map[types.UID]failedWrite{}, firstSeen: map[types.UID]time.Time{}}
}

// maxConcurrentWrites is the number of concurrent writes.
const maxConcurrentWrites = 32

// Pauses after a failed write: after a conflict, and after any other error. writeTimeout
// bounds a write.
const (
	conflictPause    = 50 * time.Millisecond
	failedWritePause = 10 * time.Second
	writeTimeout     = 2 * time.Second
)

// Reconcile runs a pass over all gated requesters; it ignores the request.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if c.leadingSince.IsZero() {
		c.leadingSince = c.opts.Now()
	}
	w, pods, err := c.observe(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var result reconcile.Result
	if len(c.failed) > 0 {
		result.RequeueAfter = failedWritePause
	}
	var ready []Decision
	for _, d := range Decide(w) {
		if d.Wait.IsZero() {
			ready = append(ready, d)
			continue
		}
		if wait := max(min(d.Wait.Sub(w.Now), unheardRecheck), time.Millisecond); result.RequeueAfter == 0 || wait < result.RequeueAfter {
			result.RequeueAfter = wait
		}
	}
	errs := make([]error, len(ready))
	var writing sync.WaitGroup
	turns := make(chan struct{}, maxConcurrentWrites)
	for i := range ready {
		turns <- struct{}{}
		writing.Go(func() { errs[i] = c.removeGate(ctx, pods[ready[i].UID], &ready[i]); <-turns })
	}
	writing.Wait()
	for i := range ready {
		if errs[i] == nil {
			c.written[ready[i].UID] = placement(&ready[i], w.Now)
			continue
		}
		pause := conflictPause // the cache is stale
		if !apierrors.IsConflict(errs[i]) {
			pause = failedWritePause
			failed := failedWrite{until: c.opts.Now().Add(failedWritePause)}
			if dualpods.AnswerLost(errs[i]) {
				failed.maybeWritten = placement(&ready[i], w.Now)
			}
			c.failed[ready[i].UID] = failed
			c.opts.Recorder.Eventf(pods[ready[i].UID], nil, corev1.EventTypeWarning, "NotPlaced", "Place", "%s", dualpods.Truncate(errs[i].Error(), maxWhy))
		}
		if result.RequeueAfter == 0 || pause < result.RequeueAfter {
			result.RequeueAfter = pause
		}
	}
	return result, nil
}

// unheardRecheck is the period between passes while a launcher was not heard yet.
const unheardRecheck = 100 * time.Millisecond

// maxWhy bounds the reason in a Pod's annotation, in bytes.
const maxWhy = 1024

func placement(d *Decision, now time.Time) podmeta.Placement {
	return podmeta.Placement{Launcher: d.Sleeper.Launcher, Instance: d.Sleeper.Instance, Why: dualpods.Truncate(d.Why, maxWhy), Since: now}
}

// removeGate adds the preferences to a Pod and removes its gate in one write. Only a gated Pod
// accepts preferences (scheduling directives of gated Pods in
// https://kubernetes.io/docs/concepts/scheduling-eviction/pod-scheduling-readiness/).
func (c *Controller) removeGate(ctx context.Context, pod *corev1.Pod, d *Decision) error {
	changed := pod.DeepCopy()
	changed.Spec.SchedulingGates = slices.DeleteFunc(changed.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == podmeta.SchedulingGate })
	addPreferences(&changed.Spec, d.Prefer)
	requireLabel(&changed.Spec, d.Require)
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[podmeta.AnnotationPlacement] = placement(d, c.opts.Now()).Encode()
	ctx, stop := context.WithTimeout(ctx, writeTimeout)
	defer stop()
	err := c.opts.API.Patch(ctx, changed, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return err
	case err != nil:
		return fmt.Errorf("cannot remove the gate %s of Pod %s/%s: %w", podmeta.SchedulingGate, pod.Namespace, pod.Name, err)
	}
	if len(d.Prefer) > 0 || d.Require != "" {
		c.opts.Recorder.Eventf(changed, nil, corev1.EventTypeNormal, "Placed", "Place", "%s", dualpods.Truncate(d.Why, maxWhy))
	}
	return nil
}

// addPreferences adds node preferences to those of a Pod.
func addPreferences(spec *corev1.PodSpec, all []Preference) {
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

// requireLabel requires that a Pod's node has a label. It adds the requirement to each
// alternative of the Pod's node affinity, the only change that the API server allows. It
// skips empty alternatives, which match no node.
func requireLabel(spec *corev1.PodSpec, label string) {
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
