package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	"hotseat.dev/hotseat/dualpods/internal/servers/placement"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// kind of object.
type kind string

const (
	caches  kind = "clustermodelcaches"
	groups  kind = "modelcachenodegroups"
	nodes   kind = "nodes"
	pods    kind = "pods"
	configs kind = "inferenceserverconfigs"
	secrets kind = "secrets"
	claimed kind = "modelcaches" // of which there are none
	pools   kind = "launcherconfigs"
	sets    kind = "daemonsets" // of which there are none
)

func kindOf(o any) kind {
	switch o.(type) {
	case *v1alpha1.ClusterModelCache, *v1alpha1.ClusterModelCacheList:
		return caches
	case *v1alpha1.ModelCacheNodeGroup, *v1alpha1.ModelCacheNodeGroupList:
		return groups
	case *corev1.Node, *corev1.NodeList:
		return nodes
	case *corev1.Pod, *corev1.PodList:
		return pods
	case *v1alpha1.InferenceServerConfig:
		return configs
	case *corev1.Secret:
		return secrets
	case *v1alpha1.ModelCacheList:
		return claimed
	case *v1alpha1.LauncherConfig:
		return pools
	case *appsv1.DaemonSet:
		return sets
	}
	panic(fmt.Sprintf("the simulated API server has no %T", o))
}

func notFound(k kind, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: string(k)}, name)
}

// api is the API server. What is stored is never changed: a write stores another object.
type api struct {
	w         *world
	version   int
	objects   map[kind]map[string]client.Object // by name
	informers []*informer
	down      bool
	flaky     uint64          // percent of the controllers' writes that fail
	refuses   map[string]bool // names of objects that admission has the controllers not write
	changed   map[string]time.Time
}

func newAPI(w *world) *api {
	a := &api{w: w, objects: map[kind]map[string]client.Object{}, refuses: map[string]bool{}, changed: map[string]time.Time{}}
	for _, k := range []kind{caches, groups, nodes, pods, configs, secrets, pools} {
		a.objects[k] = map[string]client.Object{}
	}
	return a
}

// put stores an object; one that is being deleted and that nothing keeps is gone.
func (a *api) put(o client.Object) {
	k := kindOf(o)
	if o.GetUID() == "" {
		a.w.names++
		o.SetUID(types.UID(fmt.Sprintf("%s-%d", o.GetName(), a.w.names)))
		o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
		o.SetGeneration(1)
	}
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 && k != pods {
		a.drop(o)
		return
	}
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))
	a.objects[k][o.GetName()] = o
	a.tell(k, o, false)
	a.w.truth.look()
}

func (a *api) drop(o client.Object) {
	k := kindOf(o)
	delete(a.objects[k], o.GetName())
	a.tell(k, o, true)
	a.w.truth.look()
}

// change stores an object with a change that somebody else than a controller makes.
func change[T client.Object](a *api, k kind, name string, do func(T)) {
	if o, there := a.objects[k][name]; there {
		o := o.DeepCopyObject().(T)
		do(o)
		a.put(o)
	}
}

// remove asks for the deletion of an object.
func (a *api) remove(k kind, name string) {
	o := a.objects[k][name]
	if o == nil || o.GetDeletionTimestamp() != nil {
		return
	}
	o = o.DeepCopyObject().(client.Object)
	now := metav1.Now()
	o.SetDeletionTimestamp(&now)
	a.put(o)
}

// all are the objects of a kind, by their names.
func all[T client.Object](a *api, k kind) (list []T) {
	for _, name := range sorted(a.objects[k]) {
		list = append(list, a.objects[k][name].(T))
	}
	return list
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// informer is what a controller process knows of the objects: each kind lags behind, in
// the order of the changes.
type informer struct {
	p       *process
	objects map[kind]map[string]client.Object
	last    map[kind]time.Time
}

// follow makes an informer that has all there is.
func (a *api) follow(p *process) *informer {
	i := &informer{p: p, objects: map[kind]map[string]client.Object{}, last: map[kind]time.Time{}}
	for k, all := range a.objects {
		i.objects[k] = maps.Clone(all)
	}
	a.informers = append(slices.DeleteFunc(a.informers, func(i *informer) bool { return i.p.dead }), i)
	return i
}

// longestLag is how late an informer hears of a change at most, as is a stream of a
// launcher.
const longestLag = time.Second

// lag is how late somebody hears of a change.
func (w *world) lag(kind string) time.Duration {
	d := w.Between("lag "+kind, 200*time.Microsecond, longestLag/100)
	if w.Chance("long lag "+kind, 8) {
		d *= 100
	}
	return d
}

func (a *api) tell(k kind, o client.Object, gone bool) {
	for _, i := range a.informers {
		if i.p.dead {
			continue
		}
		at := time.Now().Add(a.w.lag(string(k)))
		if !at.After(i.last[k]) {
			at = i.last[k].Add(time.Microsecond)
		}
		i.last[k] = at
		a.w.after(time.Until(at), func() { i.hear(k, o, gone) })
	}
}

func (i *informer) hear(k kind, o client.Object, gone bool) {
	if i.p.dead {
		return
	}
	before := i.objects[k][o.GetName()]
	if gone {
		delete(i.objects[k], o.GetName())
	} else {
		i.objects[k][o.GetName()] = o
	}
	switch k {
	case pods:
		pod := o.(*corev1.Pod)
		if len(modelcache.IndexedStore(pod)) > 0 {
			i.p.toCaches.add()
		}
		if !gone && placement.Awaits(pod) {
			i.p.toPlaces.add()
		}
		if gone {
			i.p.forget(string(pod.UID))
		} else {
			i.p.watch(pod)
		}
	case nodes:
		was, there := before.(*corev1.Node)
		if is := o.(*corev1.Node); gone || !there || !maps.Equal(was.Labels, is.Labels) || modelcache.Down(was) != modelcache.Down(is) {
			i.p.toCaches.add()
		}
	case caches, groups, secrets, pools:
		i.p.toCaches.add()
	case configs, claimed, sets:
	}
}

func (i *informer) pods() (all []*corev1.Pod) {
	for _, name := range sorted(i.objects[pods]) {
		all = append(all, i.objects[pods][name].(*corev1.Pod))
	}
	return all
}
