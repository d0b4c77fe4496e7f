package gang

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// apiServer has Pods, nodes and ModelServings. The cache shows them as they were at its last
// refresh.
type apiServer struct {
	client.Client // of which nothing else is called

	now      func() metav1.Time
	version  int
	pods     map[string]*corev1.Pod
	nodes    map[string]*corev1.Node
	servings map[string]*v1alpha1.ModelServing

	cachedPods     map[string]*corev1.Pod
	cachedNodes    map[string]*corev1.Node
	cachedServings map[string]*v1alpha1.ModelServing

	// fails decides whether a write fails, and whether it is made all the same.
	fails   func(what string) (fails, made bool)
	missed  func() // is called when a group has missed its deadline
	log     func(format string, args ...any)
	writing sync.Mutex
}

func newAPIServer(now func() metav1.Time, log func(string, ...any)) *apiServer {
	return &apiServer{
		now: now, pods: map[string]*corev1.Pod{}, nodes: map[string]*corev1.Node{}, servings: map[string]*v1alpha1.ModelServing{},
		fails: func(string) (bool, bool) { return false, false }, log: log,
	}
}

func (a *apiServer) refreshPods()     { a.cachedPods = copied(a.cachedPods, a.pods) }
func (a *apiServer) refreshNodes()    { a.cachedNodes = copied(a.cachedNodes, a.nodes) }
func (a *apiServer) refreshServings() { a.cachedServings = copied(a.cachedServings, a.servings) }

func (a *apiServer) refresh() {
	a.refreshPods()
	a.refreshNodes()
	a.refreshServings()
}

// copied returns copies of objects. An object that has not changed is not copied again.
func copied[T any, P interface {
	*T
	client.Object
	DeepCopy() *T
}](had, all map[string]P) map[string]P {
	to := make(map[string]P, len(all))
	for name, o := range all {
		if is := had[name]; is != nil && is.GetUID() == o.GetUID() && is.GetResourceVersion() == o.GetResourceVersion() {
			to[name] = is
		} else {
			to[name] = o.DeepCopy()
		}
	}
	return to
}

// changed gives an object its next version.
func (a *apiServer) changed(o client.Object) {
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))
}

func notFound(name string) error { return apierrors.NewNotFound(schema.GroupResource{}, name) }

var errLost = errors.New("the answer was lost")

// write makes a write, or fails.
func (a *apiServer) write(what, name string, make func() error) error {
	a.writing.Lock()
	defer a.writing.Unlock()
	fails, made := a.fails(what + " " + name)
	if fails && !made {
		return errLost
	}
	err := make()
	a.log("%s %s: %v", what, name, err)
	if err == nil && fails {
		return errLost
	}
	return err
}

func (a *apiServer) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *corev1.Pod:
		if pod := a.cachedPods[key.Name]; pod != nil {
			pod.DeepCopyInto(into)
			return nil
		}
	case *v1alpha1.ModelServing:
		if serving := a.cachedServings[key.Name]; serving != nil {
			serving.DeepCopyInto(into)
			return nil
		}
	}
	return notFound(key.Name)
}

func (a *apiServer) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	var by client.ListOptions
	by.ApplyOptions(options)
	switch into := into.(type) {
	case *corev1.PodList:
		into.Items = make([]corev1.Pod, 0, len(a.cachedPods))
		for _, name := range slices.Sorted(maps.Keys(a.cachedPods)) {
			pod := a.cachedPods[name]
			for _, r := range by.FieldSelector.Requirements() {
				values := Indexed(pod)
				if r.Field == groups.Index {
					values = groups.Indexed(pod)
				}
				if slices.Contains(values, r.Value) {
					into.Items = append(into.Items, *pod)
				}
			}
		}
	case *corev1.NodeList:
		for _, name := range slices.Sorted(maps.Keys(a.cachedNodes)) {
			into.Items = append(into.Items, *a.cachedNodes[name])
		}
	case *v1alpha1.ModelServingList:
		for _, name := range slices.Sorted(maps.Keys(a.cachedServings)) {
			into.Items = append(into.Items, *a.cachedServings[name])
		}
	}
	return nil
}

// Patch sets the gates of a Pod that has not changed.
func (a *apiServer) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return a.write("remove the gate of", o.GetName(), func() error {
		is := a.pods[o.GetName()]
		switch {
		case is == nil || is.UID != o.GetUID():
			return notFound(o.GetName())
		case is.ResourceVersion != o.GetResourceVersion():
			return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("it has changed"))
		}
		is.Spec.SchedulingGates, is.Spec.NodeSelector = o.(*corev1.Pod).Spec.SchedulingGates, o.(*corev1.Pod).Spec.NodeSelector
		a.changed(is)
		o.SetResourceVersion(is.ResourceVersion)
		return nil
	})
}

// Delete begins to delete a Pod. A Pod without a node is gone at once.
func (a *apiServer) Delete(_ context.Context, o client.Object, options ...client.DeleteOption) error {
	var how client.DeleteOptions
	how.ApplyOptions(options)
	return a.write("delete", o.GetName(), func() error {
		is := a.pods[o.GetName()]
		switch {
		case is == nil:
			return notFound(o.GetName())
		case how.Preconditions != nil && *how.Preconditions.UID != is.UID:
			return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("it is another one"))
		case is.Spec.NodeName == "":
			delete(a.pods, o.GetName())
			return nil
		}
		is.DeletionTimestamp = new(a.now())
		a.changed(is)
		return nil
	})
}

func (a *apiServer) Status() client.SubResourceWriter { return statusWriter{api: a} }

type statusWriter struct {
	client.SubResourceWriter // of which nothing else is called

	api *apiServer
}

func (w statusWriter) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return w.api.write("record of", o.GetName(), func() error {
		is := w.api.servings[o.GetName()]
		switch {
		case is == nil:
			return notFound(o.GetName())
		case is.ResourceVersion != o.GetResourceVersion():
			return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("it has changed"))
		}
		is.Status = o.(*v1alpha1.ModelServing).DeepCopy().Status
		w.api.changed(is)
		o.SetResourceVersion(is.ResourceVersion)
		for _, g := range is.Status.Groups {
			if g.Gang != nil && g.Gang.State == v1alpha1.GangMissed && w.api.now().Sub(g.Gang.Since.Time) < time.Second {
				w.api.missed()
			}
			if g.Gang != nil {
				w.api.log("  %s is %s since %s, %d misses", g.Name, g.Gang.State, g.Gang.Since.Format("15:04:05"), g.Gang.Misses)
			}
		}
		return nil
	})
}
