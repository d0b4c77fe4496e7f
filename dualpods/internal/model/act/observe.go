package act

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/model/decide"
	"hotseat.dev/hotseat/dualpods/internal/model/merge"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Index is the field by which Pods are indexed in the cache: the Model whose entry they are of.
const Index = "model"

// Indexed is the value of that field.
func Indexed(o client.Object) []string {
	if name := o.GetLabels()[podmeta.LabelModel]; name != "" {
		return []string{name}
	}
	return nil
}

// world is what a pass has observed, and then what it has decided.
type world struct {
	model    *v1alpha1.Model
	now      time.Time
	entries  []*entry // in the order of the Model
	gone     []*entry // those that are not in the Model any more
	lost     []string // what the condition NameConflict says of each name whose requests go to another Model
	demand   demand.Count
	heard    bool // all front doors were heard
	window   *decide.Window
	decision *decide.Decision
}

// entry is an entry with its objects.
type entry struct {
	merge.Entry

	deployment *appsv1.Deployment              // nil: there is none; an entry with seats has none
	config     *v1alpha1.InferenceServerConfig // likewise
	pods       []*corev1.Pod
	taken      string        // which object with its name is somebody else's; empty: none
	takenEnds  bool          // that object is being deleted
	pause      time.Duration // before a write of others to its Deployment is undone; 0: none
	scalePause time.Duration // before their number of replicas is undone; 0: at once
	asleep     int           // sleepers on free GPUs

	noSeatSince time.Time // since when it has waited for a seat; zero: it does not wait
}

// delay returns the longest scaleDownDelaySeconds of the entries.
func (w *world) delay() (longest time.Duration) {
	for _, e := range w.entries {
		longest = max(longest, e.ScaleDownDelay)
	}
	return longest
}

func (c *Controller) observe(ctx context.Context, m *v1alpha1.Model) (*world, error) {
	w := &world{model: m, now: c.opts.Now(), window: c.windowOf(client.ObjectKeyFromObject(m))}
	var failed error
	profiles := func(name string) *v1alpha1.ResourceProfile {
		var profile v1alpha1.ResourceProfile
		if err := c.opts.API.Get(ctx, client.ObjectKey{Name: name}, &profile); err != nil {
			if !apierrors.IsNotFound(err) {
				failed = fmt.Errorf("cannot read ResourceProfile %s: %w", name, err)
			}
			return nil
		}
		return &profile
	}
	pools := func(name string) *v1alpha1.SeatPool {
		var pool v1alpha1.SeatPool
		if err := c.opts.API.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: name}, &pool); err != nil {
			if !apierrors.IsNotFound(err) {
				failed = fmt.Errorf("cannot read SeatPool %s: %w", name, err)
			}
			return nil
		}
		return &pool
	}
	for _, e := range merge.Entries(m, profiles, pools) {
		w.entries = append(w.entries, &entry{Entry: e})
	}
	if failed != nil {
		return nil, failed
	}
	if err := c.observeLaunchers(ctx, w); err != nil {
		return nil, err
	}
	if err := c.observeObjects(ctx, w); err != nil {
		return nil, err
	}
	if err := c.observePods(ctx, w); err != nil {
		return nil, err
	}
	for _, e := range w.entries {
		c.noteWaiting(client.ObjectKeyFromObject(m), e, w.now)
		if e.deployment == nil && e.Pool == "" || e.config == nil {
			e.taken = c.takenOf(m, e.Name)
		}
	}
	if err := c.observeNames(ctx, w); err != nil {
		return nil, err
	}
	if err := c.observeSleepers(ctx, w); err != nil {
		return nil, err
	}
	w.demand, w.heard = c.opts.Demand.Of(client.ObjectKeyFromObject(m))
	w.window.Ended(w.demand.Ended)
	w.window.Add(w.now, w.demand.Total())
	return w, nil
}

// observeLaunchers finds entries whose LauncherConfig is not there.
func (c *Controller) observeLaunchers(ctx context.Context, w *world) error {
	for _, e := range w.entries {
		name := e.Settings.LauncherConfigName
		if e.Problem != "" || e.RunsIn != v1alpha1.RunsInLauncher {
			continue
		}
		err := c.opts.API.Get(ctx, client.ObjectKey{Namespace: w.model.Namespace, Name: name}, &v1alpha1.LauncherConfig{}, client.UnsafeDisableDeepCopy)
		switch {
		case apierrors.IsNotFound(err):
			e.Problem = fmt.Sprintf("there is no LauncherConfig %s in the namespace %s: create it, or name another one in launcherConfigName", name, w.model.Namespace)
		case err != nil:
			return fmt.Errorf("cannot read LauncherConfig %s: %w", name, err)
		}
	}
	return nil
}

// find returns the entry of a name; one that the Model has not any more is added to those that are gone.
func (w *world) find(name string) *entry {
	for _, all := range [][]*entry{w.entries, w.gone} {
		for _, e := range all {
			if e.Name == name {
				return e
			}
		}
	}
	e := &entry{Entry: merge.Entry{Name: name}}
	w.gone = append(w.gone, e)
	return e
}

// observeObjects reads the Deployments and InferenceServerConfigs of the Model.
func (c *Controller) observeObjects(ctx context.Context, w *world) error {
	ours := []client.ListOption{client.InNamespace(w.model.Namespace), client.MatchingLabels{podmeta.LabelModel: w.model.Name}}
	var deployments appsv1.DeploymentList
	if err := c.opts.API.List(ctx, &deployments, ours...); err != nil {
		return fmt.Errorf("cannot list Deployments: %w", err)
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		if metav1.IsControlledBy(d, w.model) {
			w.find(d.Labels[podmeta.LabelModelEntry]).deployment = d
		}
	}
	var configs v1alpha1.InferenceServerConfigList
	if err := c.opts.API.List(ctx, &configs, ours...); err != nil {
		return fmt.Errorf("cannot list InferenceServerConfigs: %w", err)
	}
	for i := range configs.Items {
		o := &configs.Items[i]
		if metav1.IsControlledBy(o, w.model) {
			w.find(o.Labels[podmeta.LabelModelEntry]).config = o
		}
	}
	return nil
}

// observePods reads the Pods of the Model's Deployments, and its seats. It leaves out a Pod that only has the labels of
// one, and was made by somebody else.
func (c *Controller) observePods(ctx context.Context, w *world) error {
	var pods corev1.PodList
	if err := c.opts.API.List(ctx, &pods, client.InNamespace(w.model.Namespace), client.MatchingFields{Index: w.model.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("cannot list Pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		e := w.find(pod.Labels[podmeta.LabelModelEntry])
		if (e.deployment != nil && isOf(pod, e.deployment) || isSeatOf(pod, w.model.Name, e.Name)) && !podmeta.Finished(pod) {
			e.pods = append(e.pods, pod)
		}
	}
	return nil
}

// isOf reports whether a Pod is of a ReplicaSet of a Deployment, whose name is made of the Deployment's and a hash
// that is a label of the Pod.
func isOf(pod *corev1.Pod, d *appsv1.Deployment) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "ReplicaSet" && owner.Name == d.Name+"-"+pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
}

// observed returns what is to be decided about.
func (w *world) observed() *decide.Model {
	spec := &w.model.Spec
	m := &decide.Model{Now: w.now, Mode: w.mode(), TotalMin: number(spec.TotalMinReplicas), TotalMax: number(spec.TotalMaxReplicas)}
	m.Replicas = number(spec.Replicas)
	peak, known := w.window.Peak(w.now, w.delay())
	m.Demand = decide.Demand{Now: w.demand.Total(), Held: w.demand.Waiting(), Mean: w.window.Mean(w.now), Peak: peak, Known: known && w.heard}
	for _, e := range w.entries {
		m.Entries = append(m.Entries, w.observedEntry(e))
	}
	return m
}

// mode returns who says how many replicas the Model has.
func (w *world) mode() decide.Mode {
	if a := w.model.Spec.Autoscaling; a != nil && a.Mode != "" {
		return decide.Mode(a.Mode)
	}
	return decide.Requests
}

func number(n *int32) int {
	if n == nil {
		return 0
	}
	return int(*n)
}

func (w *world) observedEntry(e *entry) decide.Entry {
	o := decide.Entry{
		Name: e.Name, Hash: e.Hash, Min: e.Min, Max: e.Max, Target: e.Target, Group: e.Group, Invalid: e.Problem,
		Unschedulable: e.UnschedulableTime, ScaleUpTimeout: e.ScaleUpTimeout, Record: recordOf(w.model, e.Name), AsleepOnFree: e.asleep,
	}
	if e.taken != "" {
		o.Invalid = e.taken
	}
	if e.Pool != "" {
		w.observeSeats(e, &o)
	} else if d := e.deployment; d != nil {
		o.Replicas = int(*d.Spec.Replicas)
		_ = json.Unmarshal([]byte(d.Annotations[podmeta.AnnotationAsked]), &o.Asked) // zero if somebody has damaged it
		o.Refused = refusedOf(d)
	}
	for _, pod := range e.pods {
		p := podOf(pod, e.RunsIn)
		p.Leaving = p.Leaving || podmeta.IsSeat(pod) != (e.Pool != "") // the entry was edited
		p.InFlight = w.demand.InFlight[pod.Name]
		o.Pods = append(o.Pods, p)
	}
	return o
}

// recordOf returns what the status of a Model keeps of an entry.
func recordOf(m *v1alpha1.Model, name string) (r decide.Record) {
	for i := range m.Status.Specs {
		s := &m.Status.Specs[i]
		if s.Name != name {
			continue
		}
		r.Hash, r.Failures = s.Hash, int(s.Failures)
		if s.LastFailure != nil {
			r.LastFailure = &decide.Failure{Reason: s.LastFailure.Reason, Message: s.LastFailure.Message, Time: s.LastFailure.Time.Time}
		}
		if s.BackoffUntil != nil {
			r.BackoffUntil = s.BackoffUntil.Time
		}
	}
	return r
}

// refusedOf returns why a Deployment cannot create Pods; nil: it can.
func refusedOf(d *appsv1.Deployment) *decide.Failure {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return &decide.Failure{Reason: decide.ReasonNotCreated, Message: c.Message, Time: c.LastTransitionTime.Time}
		}
	}
	return nil
}
