package seatpool

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/model/seats"
	"hotseat.dev/hotseat/dualpods/internal/model/workload"
	serversdecide "hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Index is the field by which Pods are indexed in the cache: the SeatPool whose seats they are.
const Index = "seatpool"

// Indexed is the value of that field.
func Indexed(o client.Object) []string {
	if name := o.GetLabels()[podmeta.LabelSeat]; name != "" {
		return []string{name}
	}
	return nil
}

// world is what a pass has observed, and then what it has decided.
type world struct {
	pool     *v1alpha1.SeatPool
	now      time.Time
	memory   *memory
	template corev1.PodTemplateSpec
	problem  string                 // of the template; empty: it can be used
	pods     map[string]*corev1.Pod // of seats that are not being deleted, by name
	seats    []seats.Seat
	claims   map[string]*claim // by MODEL/ENTRY
	heard    bool              // all front doors were heard
	unheard  bool              // a launcher of a seat has not told what it has
	stale    bool              // the cache does not show yet what was written
	decision *seats.Decision
}

// claim is an entry of a Model that asks for seats.
type claim struct {
	config *v1alpha1.InferenceServerConfig
	asked  podmeta.SeatsAsked
	form   form.Form
	count  demand.Count
	entry  string
	model  string
}

func (c *claim) name() string { return c.model + "/" + c.entry }

func (c *Controller) observe(ctx context.Context, pool *v1alpha1.SeatPool) (*world, error) {
	key := client.ObjectKeyFromObject(pool)
	w := &world{pool: pool, now: c.opts.Now(), memory: c.memoryOf(key), pods: map[string]*corev1.Pod{}, claims: map[string]*claim{}, heard: true}
	template, problems := pool.PodTemplate()
	if w.problem = podmeta.Join(problems); w.problem == "" {
		var err error
		if template, err = workload.SeatTemplate(pool, c.opts.Image); err != nil {
			w.problem = err.Error()
		}
	}
	w.template = template
	if err := c.observeClaims(ctx, w); err != nil {
		return nil, err
	}
	if err := c.observePods(ctx, w); err != nil {
		return nil, err
	}
	w.remember()
	return w, nil
}

// observeClaims reads the entries that ask for seats of the pool.
func (c *Controller) observeClaims(ctx context.Context, w *world) error {
	var configs v1alpha1.InferenceServerConfigList
	err := c.opts.API.List(ctx, &configs, client.InNamespace(w.pool.Namespace), client.MatchingLabels{podmeta.LabelSeat: w.pool.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("cannot list InferenceServerConfigs: %w", err)
	}
	models := map[types.NamespacedName]bool{}
	for i := range configs.Items {
		config := &configs.Items[i]
		of := &claim{config: config, model: config.Labels[podmeta.LabelModel], entry: config.Labels[podmeta.LabelModelEntry]}
		owner := metav1.GetControllerOf(config)
		if owner == nil || owner.Kind != "Model" || owner.Name != of.model || !config.DeletionTimestamp.IsZero() {
			continue // no Model made it, or it is being deleted
		}
		if json.Unmarshal([]byte(config.Annotations[podmeta.AnnotationSeatsAsked]), &of.asked) != nil {
			continue
		}
		read, wrong := form.CheckConfig(config)
		if len(wrong) > 0 {
			continue
		}
		of.form = read
		of.form.ModelCache = of.asked.ModelCache
		model := types.NamespacedName{Namespace: config.Namespace, Name: of.model}
		models[model] = true
		count, heard := c.opts.Demand.Of(model)
		of.count, w.heard = count, w.heard && heard
		w.claims[of.name()] = of
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w.memory.models = models
	return nil
}

// observePods reads the seats of the pool. A Pod with the label that the pool does not control is no seat.
func (c *Controller) observePods(ctx context.Context, w *world) error {
	var pods corev1.PodList
	if err := c.opts.API.List(ctx, &pods, client.InNamespace(w.pool.Namespace), client.MatchingFields{Index: w.pool.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("cannot list Pods: %w", err)
	}
	uids := map[types.UID]bool{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !metav1.IsControlledBy(pod, w.pool) {
			continue
		}
		uids[pod.UID] = true
		w.stale = w.stale || w.memory.written[pod.UID].IsHidden(pod.ResourceVersion)
		if pod.DeletionTimestamp.IsZero() && !podmeta.Finished(pod) {
			w.pods[pod.Name] = pod
		}
	}
	maps.DeleteFunc(w.memory.written, func(uid types.UID, _ dualpods.LastWrite) bool { return !uids[uid] })
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		of, err := c.seatOf(ctx, w, w.pods[name])
		if err != nil {
			return err
		}
		w.seats = append(w.seats, of)
	}
	return nil
}

// seatOf reads a seat.
func (c *Controller) seatOf(ctx context.Context, w *world, pod *corev1.Pod) (seats.Seat, error) {
	of, status := podmeta.ReadAssignment(pod), podmeta.ReadStatus(pod)
	s := seats.Seat{Name: pod.Name, Hash: of.Hash, Leaves: of.Leaves, Serving: pod.Labels[podmeta.LabelServes] != "", Usable: isUsable(pod, &status)}
	s.Outdated = w.problem == "" && pod.Annotations[podmeta.AnnotationTemplateHash] != workload.SeatHash(&w.template)
	if of.ID() != "" {
		s.Claim = of.Model + "/" + of.Entry
		count, heard := c.opts.Demand.Of(types.NamespacedName{Namespace: pod.Namespace, Name: of.Model})
		s.InFlight, w.heard = count.InFlight[pod.Name], w.heard && heard
		s.Goes = pod.Annotations[corev1.PodDeletionCost] == goesFirst
		if s.Ready = status.Seat == of.ID() && status.State == serversdecide.StateServing && status.Reason == ""; s.Ready {
			s.ReadySince = status.Since
		}
	}
	if s.Edited = podmeta.SeatEdited(pod) || of.ID() == "" && s.Serving; s.Edited && s.Claim == "" {
		s.Claim = unknown // what is left of the model goes too
	}
	return s, c.observeBehind(ctx, w, pod, &status, &s)
}

// unknown is the entry of a seat that has a model, and does not say of which entry.
const unknown = "/"

// goesFirst is the pod-deletion-cost by which the controller of Models says which of its seats goes.
const goesFirst = "-1"

// isUsable reports whether a seat can be given a model: its program runs, its launcher answers, and nothing is wrong with
// its GPUs. The binding says so in its status.
func isUsable(pod *corev1.Pod, status *podmeta.Status) bool {
	reason := serversdecide.Reason(status.Reason)
	return podmeta.ProgramOf(pod).Runs() && !podmeta.Ending(pod) && len(status.GPUs) > 0 && (reason == serversdecide.NoModel || reason == serversdecide.NotServing)
}

// asleepSoon are the states of instances that sleep, or that fall asleep once their seat has lost them. The instance of a
// seat counts only for the entry of the seat.
var asleepSoon = []launcher.State{launcher.Sleeping, launcher.FallingAsleep, launcher.Awake}

// observeBehind adds the sleepers behind a seat: the sleepers on exactly its GPUs.
func (c *Controller) observeBehind(ctx context.Context, w *world, pod *corev1.Pod, status *podmeta.Status, s *seats.Seat) error {
	if status.Launcher == "" || len(status.GPUs) == 0 {
		return nil
	}
	var on corev1.Pod
	err := c.opts.API.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: status.Launcher}, &on, client.UnsafeDisableDeepCopy)
	if err != nil || on.Spec.NodeName != pod.Spec.NodeName {
		return client.IgnoreNotFound(err)
	}
	sleeping := map[string]bool{}
	view := c.opts.Views.Pick(string(on.UID), func(id string, i launcherapi.Instance) bool {
		if slices.Contains(asleepSoon, launcher.State(i.State)) && slices.Equal(slices.Sorted(slices.Values(i.GPUUUIDs)), slices.Sorted(slices.Values(status.GPUs))) {
			sleeping[id] = true
		}
		return false
	})
	w.unheard = w.unheard || !view.Connected
	if s.Sleepers = len(sleeping); s.Sleepers == 0 {
		return nil
	}
	for name, of := range w.claims {
		if f, lacks := of.form.On(&on.Spec); len(lacks) == 0 && sleeping[form.InstanceID(f, status.GPUs)] {
			s.Asleep = append(s.Asleep, name)
		}
	}
	return nil
}

// remember notes when Models were used last, and since when entries have waited.
func (w *world) remember() {
	has := map[string]int{}
	for _, pod := range w.pods {
		if of := podmeta.ReadAssignment(pod); of.Leaves.IsZero() {
			has[of.Model+"/"+of.Entry]++
		}
	}
	for name, of := range w.claims {
		requests := of.count.Total()
		if requests > 0 {
			w.memory.lastUsed[name] = w.now
		} else if of.count.Ended.After(w.memory.lastUsed[name]) {
			w.memory.lastUsed[name] = of.count.Ended
		}
		switch {
		case requests == 0 && !of.asked.Firm || has[name] >= of.asked.Replicas:
			delete(w.memory.waitsFrom, name)
		case w.memory.waitsFrom[name].IsZero() || has[name] != w.memory.had[name]:
			w.memory.waitsFrom[name] = w.now
		}
	}
	w.memory.had = has
	for _, all := range []map[string]time.Time{w.memory.lastUsed, w.memory.waitsFrom, w.memory.lostAt} {
		maps.DeleteFunc(all, func(name string, _ time.Time) bool { return w.claims[name] == nil })
	}
}

// observed returns what is to be decided about.
func (w *world) observed() *seats.Pool {
	spec := &w.pool.Spec
	p := &seats.Pool{
		Now: w.now, Replicas: number(spec.Replicas, 1), Known: w.heard,
		Seats:        w.seats,
		MinResidency: time.Duration(number(spec.MinResidencySeconds, 10)) * time.Second, Drain: time.Duration(number(spec.DrainSeconds, 30)) * time.Second,
	}
	for _, name := range slices.Sorted(maps.Keys(w.claims)) {
		of := w.claims[name]
		p.Claims = append(p.Claims, seats.Claim{
			Name: name, Hash: of.asked.Hash, Wants: of.asked.Replicas, Min: of.asked.Min, Weight: of.asked.Target, Firm: of.asked.Firm,
			Requests: of.count.Total(), LastUsed: w.memory.lastUsed[name], WaitsFrom: w.memory.waitsFrom[name], LostAt: w.memory.lostAt[name],
		})
	}
	return p
}

func number(n *int32, otherwise int32) int {
	if n == nil {
		return int(otherwise)
	}
	return int(*n)
}
