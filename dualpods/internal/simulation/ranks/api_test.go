package ranks

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// kindOf names the kind of an object or of a list.
func kindOf(o any) string { return strings.TrimSuffix(fmt.Sprintf("%T", o), "List") }

var podKind = kindOf(&corev1.Pod{})

// api is the API server, with one namespace. A stored object is never changed: a write stores another
// object.
type api struct {
	w         *world
	version   int
	objects   map[string]map[string]client.Object // by kind and name
	informers []*informer
	down      bool
	flaky     uint64 // percent of the controllers' writes that fail
}

func newAPI(w *world) *api { return &api{w: w, objects: map[string]map[string]client.Object{}} }

func (a *api) get(kind, name string) client.Object { return a.objects[kind][name] }

func (a *api) pod(name string) *corev1.Pod {
	pod, _ := a.get(podKind, name).(*corev1.Pod)
	return pod
}

// podOf returns the Pod of that UID; nil: it is gone.
func (a *api) podOf(name string, uid types.UID) *corev1.Pod {
	if pod := a.pod(name); pod != nil && pod.UID == uid {
		return pod
	}
	return nil
}

func (a *api) pods() (all []*corev1.Pod) {
	for _, name := range sorted(a.objects[podKind]) {
		all = append(all, a.pod(name))
	}
	return all
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// put stores an object. A Pod that is being deleted is gone once nothing keeps it.
func (a *api) put(o client.Object) {
	kind, name := kindOf(o), o.GetName()
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("%s-%d", name, a.w.number())))
		o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
		o.SetGeneration(1)
	}
	if grace := o.GetDeletionGracePeriodSeconds(); o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 && grace != nil && *grace == 0 {
		a.drop(o)
		return
	}
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))
	if a.objects[kind] == nil {
		a.objects[kind] = map[string]client.Object{}
	}
	a.objects[kind][name] = o
	a.tell(kind, o, false)
}

func (a *api) drop(o client.Object) {
	delete(a.objects[kindOf(o)], o.GetName())
	a.tell(kindOf(o), o, true)
	if pod, is := o.(*corev1.Pod); is {
		a.w.note("Pod %s is gone", pod.Name)
		a.w.podGone(pod)
	}
}

// changePod stores a Pod with a change that somebody else than a controller makes.
func (a *api) changePod(of *corev1.Pod, change func(*corev1.Pod)) {
	if pod := a.podOf(of.Name, of.UID); pod != nil {
		pod = pod.DeepCopy()
		change(pod)
		a.put(pod)
	}
}

// remove asks for the deletion of an object.
func (a *api) remove(o client.Object, grace int64) {
	pod, is := o.(*corev1.Pod)
	if !is {
		a.drop(o)
		return
	}
	if pod.Spec.NodeName == "" || len(pod.Status.ContainerStatuses) == 0 {
		grace = 0
	}
	first := pod.DeletionTimestamp == nil
	a.changePod(pod, func(p *corev1.Pod) {
		if first || grace < *p.DeletionGracePeriodSeconds {
			ends := metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second))
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &ends, &grace
		}
	})
	if first {
		a.w.podDeleted(pod)
	}
}

// informer is what a controller process knows of the objects: each kind lags behind, in the order
// of the changes.
type informer struct {
	p       *process
	objects map[string]map[string]client.Object
	last    map[string]time.Time
}

// follow makes an informer that has all there is.
func (a *api) follow(p *process) *informer {
	i := &informer{p: p, objects: map[string]map[string]client.Object{}, last: map[string]time.Time{}}
	for kind, all := range a.objects {
		i.objects[kind] = maps.Clone(all)
	}
	a.informers = append(slices.DeleteFunc(a.informers, func(i *informer) bool { return i.p.dead }), i)
	return i
}

// longestLag is how late an informer or a stream of a launcher hears of a change at most.
const longestLag = time.Second

func (w *world) lag(kind string) time.Duration {
	d := w.Between("lag "+kind, 200*time.Microsecond, longestLag/100)
	if w.Chance("long lag "+kind, 8) {
		d *= 100
	}
	return d
}

func (a *api) tell(kind string, o client.Object, gone bool) {
	for _, i := range a.informers {
		if i.p.dead {
			continue
		}
		at := time.Now().Add(a.w.lag(kind))
		if !at.After(i.last[kind]) {
			at = i.last[kind].Add(time.Microsecond)
		}
		i.last[kind] = at
		a.w.after(time.Until(at), func() { i.hear(kind, o, gone) })
	}
}

func (i *informer) hear(kind string, o client.Object, gone bool) {
	if i.p.dead {
		return
	}
	before := i.objects[kind][o.GetName()]
	if i.objects[kind] == nil {
		i.objects[kind] = map[string]client.Object{}
	}
	if gone {
		delete(i.objects[kind], o.GetName())
	} else {
		i.objects[kind][o.GetName()] = o
	}
	if owner := podmeta.ServingOf(o); owner != nil {
		i.p.servings.add(owner.Name)
	}
	switch o := o.(type) {
	case *corev1.Pod:
		i.p.nodes.add(o.Spec.NodeName)
		if was, there := before.(*corev1.Pod); there && was.Spec.NodeName != o.Spec.NodeName {
			i.p.nodes.add(was.Spec.NodeName)
		}
		if dualpods.LooksLike(o) == dualpods.KindLauncher {
			i.p.servingsOn(o.Spec.NodeName)
		}
	case *v1alpha1.ModelServing:
		i.p.servings.add(o.Name)
	}
}
