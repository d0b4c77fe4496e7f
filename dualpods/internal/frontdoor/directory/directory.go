// Package directory knows the Models of a cluster, the names by which clients ask for them, and the Pods that
// serve them now.
package directory

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/balance"
	"hotseat.dev/hotseat/dualpods/internal/model/merge"
	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// The defaults of what a Model does not say.
const (
	defaultHold               = 300 * time.Second
	defaultMaxHeld            = 1000
	defaultReplication        = 256
	defaultMeanLoadPercentage = 125
	defaultPrefixCharLength   = 100
)

// Model is a Model as a front door needs it. It does not change.
type Model struct {
	Key      types.NamespacedName
	Labels   labels.Set
	Owner    string
	Created  time.Time
	Aliases  []string
	Adapters []string                // their names, as the Model writes them
	Names    []string                // by which clients may ask for it; its own first
	Features []v1alpha1.ModelFeature // one at least
	Hold     time.Duration           // how long a request may wait
	MaxHeld  int                     // how many may wait, at all front doors
	ByPrefix bool                    // the strategy is PrefixHash
	External bool                    // its mode is External
	Stuck    bool                    // none of its entries can run before somebody edits something
	Target   int                     // the targetRequests of its first entry that is no standby; 0: all are standbys
	// Of PrefixHash: points of a Pod for each 100 of its weight, the bound of its load in percent of the
	// mean, and how many characters count.
	Replication, MeanLoadPercentage, PrefixCharLength int

	weights map[string]int // by entry: its targetRequests
}

// adapter returns the adapter that a name of the Model stands for; empty: none.
func (m *Model) adapter(name string) string {
	if slices.Contains(m.Aliases, name) {
		return ""
	}
	for _, adapter := range m.Adapters {
		if merge.AdapterName(m.Key.Name, adapter) == name {
			return adapter
		}
	}
	return ""
}

// Has reports whether the model has a feature.
func (m *Model) Has(feature v1alpha1.ModelFeature) bool { return slices.Contains(m.Features, feature) }

// Endpoint is a Pod that serves a Model.
type Endpoint struct {
	Pod     string
	UID     types.UID
	Address string // with the port
	Entry   string
	Weight  int // the targetRequests of its entry; 0: it is a standby
	// Placed is when the Pod got its place: when its scheduling gate was removed, or a seat was given its model. Zero: the Pod
	// runs its engine itself.
	Placed time.Time
}

// Directory is safe for concurrent use.
type Directory struct {
	changed func(model types.NamespacedName)

	mu     sync.RWMutex
	models map[types.NamespacedName]*Model
	names  map[types.NamespacedName][]*Model            // by each alias and the name of each adapter; the oldest Model first
	pods   map[types.NamespacedName]*serving            // by the Pod
	byPod  map[types.NamespacedName]map[string]Endpoint // the same by the Model, also of one that is not there
	of     map[types.NamespacedName]*served             // by the Model
}

// serving is a Pod that serves a Model.
type serving struct {
	model types.NamespacedName
	Endpoint
}

// served is what serves a Model.
type served struct {
	now  []Endpoint           // sorted by the Pod; never changed in place
	ring func() *balance.Ring // of now; made when it is asked for first
}

// New returns an empty directory. It calls changed, in no lock, with each Model that may be served by other Pods
// now.
func New(changed func(model types.NamespacedName)) *Directory {
	return &Directory{
		changed: changed, models: map[types.NamespacedName]*Model{}, names: map[types.NamespacedName][]*Model{},
		pods: map[types.NamespacedName]*serving{}, byPod: map[types.NamespacedName]map[string]Endpoint{}, of: map[types.NamespacedName]*served{},
	}
}

// SetModel notes a Model. A Model that is being deleted counts as gone, even while its Pods end: clients may not ask for
// it any more.
func (d *Directory) SetModel(of *v1alpha1.Model) {
	if !of.DeletionTimestamp.IsZero() {
		d.DeleteModel(types.NamespacedName{Namespace: of.Namespace, Name: of.Name})
		return
	}
	m := read(of)
	d.mu.Lock()
	d.changeNames(d.models[m.Key], m)
	d.models[m.Key] = m
	d.look(m.Key) // the weights may have changed
	d.mu.Unlock()
	d.changed(m.Key)
}

// DeleteModel forgets a Model.
func (d *Directory) DeleteModel(key types.NamespacedName) {
	d.mu.Lock()
	d.changeNames(d.models[key], nil)
	delete(d.models, key)
	d.look(key)
	d.mu.Unlock()
	d.changed(key)
}

// changeNames notes the names of a Model in place of those that it had; nil: it has none.
func (d *Directory) changeNames(before, now *Model) {
	if before != nil {
		for _, name := range before.Names[1:] {
			key := types.NamespacedName{Namespace: before.Key.Namespace, Name: name}
			left := slices.DeleteFunc(slices.Clone(d.names[key]), func(m *Model) bool { return m == before })
			if d.names[key] = left; len(left) == 0 {
				delete(d.names, key)
			}
		}
	}
	if now == nil {
		return
	}
	for _, name := range now.Names[1:] {
		key := types.NamespacedName{Namespace: now.Key.Namespace, Name: name}
		all := append(slices.Clone(d.names[key]), now)
		slices.SortFunc(all, func(a, b *Model) int { return merge.ByAge(a.Created, a.Key.Name, b.Created, b.Key.Name) })
		d.names[key] = all
	}
}

// SetPod notes a Pod, if it serves a Model. A Pod that is being deleted does not.
func (d *Directory) SetPod(pod *corev1.Pod) {
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	model := pod.Labels[podmeta.LabelServes]
	if model == "" || model != pod.Labels[podmeta.LabelModel] || !pod.DeletionTimestamp.IsZero() || pod.Status.PodIP == "" {
		d.DeletePod(name)
		return
	}
	s := &serving{
		model:    types.NamespacedName{Namespace: pod.Namespace, Name: model},
		Endpoint: Endpoint{Pod: pod.Name, UID: pod.UID, Address: net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(podmeta.PortModel))), Entry: pod.Labels[podmeta.LabelModelEntry], Placed: placedAt(pod)},
	}
	d.changePod(name, s)
}

// placedAt returns when a Pod got its place; zero: that is not known.
func placedAt(pod *corev1.Pod) time.Time {
	if podmeta.IsSeat(pod) {
		return podmeta.ReadAssignment(pod).Since.UTC()
	}
	placed, _ := podmeta.ReadPlacement(pod)
	return placed.Since.UTC()
}

// DeletePod forgets a Pod.
func (d *Directory) DeletePod(name types.NamespacedName) { d.changePod(name, nil) }

// changePod notes what a Pod serves; nil: nothing.
func (d *Directory) changePod(name types.NamespacedName, now *serving) {
	d.mu.Lock()
	before := d.pods[name]
	if before == nil && now == nil || before != nil && now != nil && *before == *now {
		d.mu.Unlock()
		return
	}
	var changed []types.NamespacedName
	for _, s := range []*serving{before, now} {
		if s != nil && !slices.Contains(changed, s.model) {
			changed = append(changed, s.model)
		}
	}
	d.forgetPod(name, before)
	if now != nil {
		d.pods[name] = now
		if d.byPod[now.model] == nil {
			d.byPod[now.model] = map[string]Endpoint{}
		}
		d.byPod[now.model][name.Name] = now.Endpoint
	}
	for _, model := range changed {
		d.look(model)
	}
	d.mu.Unlock()
	for _, model := range changed {
		d.changed(model)
	}
}

func (d *Directory) forgetPod(name types.NamespacedName, was *serving) {
	delete(d.pods, name)
	if was == nil {
		return
	}
	delete(d.byPod[was.model], name.Name)
	if len(d.byPod[was.model]) == 0 {
		delete(d.byPod, was.model)
	}
}

// look lists the Pods of a Model anew.
func (d *Directory) look(key types.NamespacedName) {
	model := d.models[key]
	if model == nil {
		delete(d.of, key)
		return
	}
	now := &served{}
	for _, e := range d.byPod[key] {
		weight, known := model.weights[e.Entry]
		if !known {
			continue // its entry is gone, and so will it be
		}
		e.Weight = weight
		now.now = append(now.now, e)
	}
	slices.SortFunc(now.now, func(a, b Endpoint) int { return cmp.Compare(a.Pod, b.Pod) })
	now.ring = sync.OnceValue(func() *balance.Ring {
		of := make([]balance.Endpoint, len(now.now))
		for i, e := range now.now {
			of[i] = balance.Endpoint{Name: e.Pod, Weight: e.Weight}
		}
		return balance.NewRing(of, model.Replication)
	})
	d.of[key] = now
}

// Has reports whether there is a Model.
func (d *Directory) Has(key types.NamespacedName) bool { return d.Model(key) != nil }

// Model returns a Model as it is now; nil: there is none.
func (d *Directory) Model(key types.NamespacedName) *Model {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.models[key]
}

// Serving returns the Pods that serve a Model now.
func (d *Directory) Serving(key types.NamespacedName) []Endpoint {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if s := d.of[key]; s != nil {
		return s.now
	}
	return nil
}

// Ring returns the ring of the Pods that serve a Model now. A ring of many Pods takes a while to make, and keeps
// nobody waiting but those that ask for it.
func (d *Directory) Ring(key types.NamespacedName) *balance.Ring {
	d.mu.RLock()
	s := d.of[key]
	d.mu.RUnlock()
	if s == nil {
		return &balance.Ring{} // the Model is gone
	}
	return s.ring()
}

// Find returns the Model that has a name in a namespace, among some, and the name of
// the adapter that is asked for; empty: none is. A Model's own name comes before an
// alias of another, and an alias of several Models stands for the oldest. The error is an *inference.UnknownModel.
func (d *Directory) Find(namespace, name string, among func(*Model) bool) (*Model, string, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if m := d.models[types.NamespacedName{Namespace: namespace, Name: name}]; m != nil && among(m) {
		return m, "", nil
	}
	for _, m := range d.names[types.NamespacedName{Namespace: namespace, Name: name}] {
		if among(m) {
			return m, m.adapter(name), nil
		}
	}
	var all []string
	for _, m := range d.list(namespace, among) {
		all = append(all, m.Names...)
	}
	return nil, "", inference.NewUnknownModel(name, all)
}

// List returns the Models of a namespace that are among some, sorted by name.
func (d *Directory) List(namespace string, among func(*Model) bool) []*Model {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.list(namespace, among)
}

func (d *Directory) list(namespace string, among func(*Model) bool) (all []*Model) {
	for key, m := range d.models {
		if key.Namespace == namespace && among(m) {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *Model) int { return cmp.Compare(a.Key.Name, b.Key.Name) })
	return all
}

// read reads what a front door needs of a Model.
func read(of *v1alpha1.Model) *Model {
	m := &Model{
		Key: types.NamespacedName{Namespace: of.Namespace, Name: of.Name}, Labels: maps.Clone(of.Labels), Owner: of.Spec.Owner, Created: of.CreationTimestamp.Time,
		Aliases: slices.Clone(of.Spec.Aliases), Names: merge.Names(of), Features: slices.Clone(of.Spec.Features), Hold: defaultHold, MaxHeld: defaultMaxHeld,
		Replication: defaultReplication, MeanLoadPercentage: defaultMeanLoadPercentage, PrefixCharLength: defaultPrefixCharLength,
		weights: map[string]int{},
	}
	if len(m.Features) == 0 {
		m.Features = []v1alpha1.ModelFeature{v1alpha1.FeatureTextGeneration}
	}
	for _, a := range of.Spec.Adapters {
		m.Adapters = append(m.Adapters, a.Name)
	}
	if c := meta.FindStatusCondition(of.Status.Conditions, v1alpha1.ConditionAccepted); c != nil {
		m.Stuck = c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonNoEntryCanRun && c.ObservedGeneration == of.Generation
	}
	if a := of.Spec.Autoscaling; a != nil {
		m.External = a.Mode == v1alpha1.ScaleExternally
	}
	if hold := of.Spec.Hold; hold != nil {
		m.MaxHeld = number(hold.Max, defaultMaxHeld)
		if hold.TimeoutSeconds != nil {
			m.Hold = time.Duration(*hold.TimeoutSeconds) * time.Second
		}
	}
	if lb := of.Spec.LoadBalancing; lb != nil {
		m.ByPrefix = lb.Strategy == v1alpha1.StrategyPrefixHash
		if p := lb.PrefixHash; p != nil {
			m.Replication, m.MeanLoadPercentage = number(p.Replication, m.Replication), number(p.MeanLoadPercentage, m.MeanLoadPercentage)
			m.PrefixCharLength = number(p.PrefixCharLength, number(p.PrefixChatLength, m.PrefixCharLength))
		}
	}
	for _, e := range merge.Entries(of, func(string) *v1alpha1.ResourceProfile { return nil }, func(string) *v1alpha1.SeatPool { return nil }) {
		m.weights[e.Name] = e.Target
		if m.Target == 0 {
			m.Target = e.Target
		}
	}
	return m
}

func number(n *int32, otherwise int) int {
	if n == nil {
		return otherwise
	}
	return int(*n)
}
