package groups

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// lagging is an API server whose cache lags behind, each kind by itself, in the order of the changes.
// Writes fail at times, before or after they were made.
type lagging struct {
	client.Client // nil: nothing else is called

	r       *rand.Rand
	version int
	objects map[string]client.Object            // by kind and name
	caches  map[string]map[string]client.Object // by kind, and by kind and name
	news    map[string][]change                 // that the cache does not show yet, by kind
	faulty  bool
	onWrite func(do string, o client.Object)
}

type change struct {
	key string
	is  client.Object // nil: it is gone
}

func keyOf(o client.Object) string { return fmt.Sprintf("%T %s", o, o.GetName()) }

func (a *lagging) put(o client.Object) {
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", a.version)))
	}
	o.SetNamespace("ns")
	a.objects[keyOf(o)] = o
	a.tell(o, o)
}

func (a *lagging) tell(o, is client.Object) {
	kind := fmt.Sprintf("%T", o)
	a.news[kind] = append(a.news[kind], change{keyOf(o), is})
}

func (a *lagging) drop(o client.Object) {
	delete(a.objects, keyOf(o))
	a.tell(o, nil)
}

// hear has the caches show some of the news, or all.
func (a *lagging) hear(all bool) {
	for _, kind := range slices.Sorted(maps.Keys(a.news)) {
		if a.caches[kind] == nil {
			a.caches[kind] = map[string]client.Object{}
		}
		n := len(a.news[kind])
		if !all {
			n = a.r.IntN(n + 1)
		}
		for _, c := range a.news[kind][:n] {
			if c.is == nil {
				delete(a.caches[kind], c.key)
			} else {
				a.caches[kind][c.key] = c.is
			}
		}
		a.news[kind] = a.news[kind][n:]
	}
}

var errLost = errors.New("the answer was lost")

func (a *lagging) write(do string, o client.Object, effect func() error) error {
	fails, made := a.faulty && a.r.IntN(12) == 0, a.r.IntN(2) == 0
	if fails && !made {
		return errLost
	}
	if err := effect(); err != nil {
		return err
	}
	if a.onWrite != nil {
		a.onWrite(do, o)
	}
	if fails {
		return errLost
	}
	return nil
}

// next stores another version of an object that was made from the present one.
func (a *lagging) next(o client.Object, become func(there client.Object) client.Object) error {
	return a.write("change", o, func() error {
		there := a.objects[keyOf(o)]
		switch {
		case there == nil:
			return apierrors.NewNotFound(schema.GroupResource{}, o.GetName())
		case there.GetUID() != o.GetUID() || there.GetResourceVersion() != o.GetResourceVersion():
			return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("it has changed"))
		}
		is := become(there)
		a.put(is)
		o.SetResourceVersion(is.GetResourceVersion())
		return nil
	})
}

func (a *lagging) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	name := fmt.Sprintf("%T %s", into, key.Name)
	is := a.caches[fmt.Sprintf("%T", into)][name]
	if is == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(is.DeepCopyObject()).Elem())
	return nil
}

func (a *lagging) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	var by client.ListOptions
	by.ApplyOptions(opts)
	owner, _ := by.FieldSelector.RequiresExactMatch(Index)
	kind := fmt.Sprintf("%T", into)
	kind = kind[:len(kind)-len("List")]
	var found []runtime.Object
	for _, name := range slices.Sorted(maps.Keys(a.caches[kind])) {
		if o := a.caches[kind][name]; slices.Contains(Indexed(o), owner) {
			found = append(found, o) // as the cache does: nobody writes to what it shares
		}
	}
	return meta.SetList(into, found)
}

func (a *lagging) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	return a.write("create", o, func() error {
		if a.objects[keyOf(o)] != nil {
			return apierrors.NewAlreadyExists(schema.GroupResource{}, o.GetName())
		}
		a.put(o.DeepCopyObject().(client.Object))
		return nil
	})
}

func (a *lagging) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	return a.next(o, func(client.Object) client.Object { return o.DeepCopyObject().(client.Object) })
}

func (a *lagging) Patch(ctx context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return a.Update(ctx, o)
}

func (a *lagging) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	var do client.DeleteOptions
	do.ApplyOptions(opts)
	return a.write("delete", o, func() error {
		there := a.objects[keyOf(o)]
		switch version := do.Preconditions.ResourceVersion; {
		case there == nil:
			return apierrors.NewNotFound(schema.GroupResource{}, o.GetName())
		case there.GetUID() != *do.Preconditions.UID, version != nil && *version != there.GetResourceVersion():
			return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("it is another one"))
		}
		if pod, is := there.(*corev1.Pod); is {
			if pod = pod.DeepCopy(); pod.DeletionTimestamp == nil {
				pod.DeletionTimestamp = &metav1.Time{Time: now}
				a.put(pod)
			}
			return nil
		}
		a.drop(there)
		return nil
	})
}

func (a *lagging) Status() client.SubResourceWriter { return laggingStatus{nil, a} }

type laggingStatus struct {
	client.SubResourceWriter // nil
	a                        *lagging
}

func (s laggingStatus) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return s.a.next(o, func(there client.Object) client.Object {
		is := there.DeepCopyObject().(client.Object)
		switch is := is.(type) {
		case *v1alpha1.ModelServing:
			o.(*v1alpha1.ModelServing).Status.DeepCopyInto(&is.Status)
		case *v1alpha1.RoleScaler:
			is.Status = o.(*v1alpha1.RoleScaler).Status
		}
		return is
	})
}
