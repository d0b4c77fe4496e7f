package ranks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// apiClient is the API server and its cache, for a controller process.
type apiClient struct {
	client.Client // nil: the controllers call nothing but what follows
	p             *process
}

func resource(kind string) schema.GroupResource { return schema.GroupResource{Resource: kind} }

func conflict(o client.Object) error {
	return apierrors.NewConflict(resource(kindOf(o)), o.GetName(), errors.New("it was changed"))
}

func (c *apiClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	c.p.w.mu.Lock()
	defer c.p.w.mu.Unlock()
	o := c.p.informer.objects[kindOf(into)][key.Name]
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case o == nil:
		return apierrors.NewNotFound(resource(kindOf(into)), key.Name)
	}
	copyInto(o, into)
	return nil
}

func copyInto(o runtime.Object, into client.Object) {
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o.DeepCopyObject()).Elem())
}

func (c *apiClient) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	c.p.w.mu.Lock()
	defer c.p.w.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var lo client.ListOptions
	lo.ApplyOptions(opts)
	all := c.p.informer.objects[kindOf(into)]
	var found []runtime.Object
	for _, name := range sorted(all) {
		if isListed(all[name], lo) {
			found = append(found, all[name]) // as the cache does: nobody writes to what it shares
		}
	}
	return meta.SetList(into, found)
}

func isListed(o client.Object, lo client.ListOptions) bool {
	if lo.FieldSelector == nil {
		return true
	}
	if owner, is := lo.FieldSelector.RequiresExactMatch(groups.Index); is {
		return slices.Contains(groups.Indexed(o), owner)
	}
	node, _ := lo.FieldSelector.RequiresExactMatch(dualpods.IndexNode)
	return o.(*corev1.Pod).Spec.NodeName == node
}

func (c *apiClient) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	return c.write(ctx, func(a *api) error {
		if a.get(kindOf(o), o.GetName()) != nil {
			return apierrors.NewAlreadyExists(resource(kindOf(o)), o.GetName())
		}
		stored := o.DeepCopyObject().(client.Object)
		a.put(stored)
		copyInto(stored, o)
		a.w.note("API server: creates %s %s", kindOf(o), o.GetName())
		if pod, is := stored.(*corev1.Pod); is {
			a.w.created(pod)
		}
		return nil
	})
}

func (c *apiClient) Update(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
	return c.change(ctx, o, func(client.Object) (client.Object, error) { return o.DeepCopyObject().(client.Object), nil })
}

func (c *apiClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	var do client.DeleteOptions
	do.ApplyOptions(opts)
	return c.write(ctx, func(a *api) error {
		there := a.get(kindOf(o), o.GetName())
		switch {
		case there == nil:
			return apierrors.NewNotFound(resource(kindOf(o)), o.GetName())
		case !meets(there, do.Preconditions):
			return conflict(o)
		}
		a.w.note("API server: the controller deletes %s %s", kindOf(o), o.GetName())
		if pod, is := there.(*corev1.Pod); is {
			a.w.truth.deletesPod(pod, o.(*corev1.Pod))
		}
		a.remove(there, 30)
		return nil
	})
}

// meets reports whether an object is as the preconditions of a deletion say.
func meets(there client.Object, only *metav1.Preconditions) bool {
	return only == nil || *only.UID == there.GetUID() && (only.ResourceVersion == nil || *only.ResourceVersion == there.GetResourceVersion())
}

func (c *apiClient) Patch(ctx context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	return c.change(ctx, o, func(there client.Object) (client.Object, error) {
		c.p.w.note("API server: patches %s %s", o.GetName(), data)
		return patched(there, data)
	})
}

func (c *apiClient) Status() client.SubResourceWriter { return statusClient{nil, c} }

type statusClient struct {
	client.SubResourceWriter // nil
	c                        *apiClient
}

func (s statusClient) Update(ctx context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return s.c.change(ctx, o, func(there client.Object) (client.Object, error) {
		next := there.DeepCopyObject().(*v1alpha1.ModelServing)
		next.ResourceVersion = o.GetResourceVersion()
		o.(*v1alpha1.ModelServing).Status.DeepCopyInto(&next.Status)
		if next.ResourceVersion == there.GetResourceVersion() {
			s.c.p.w.truth.recorded(there.(*v1alpha1.ModelServing), next)
		}
		return next, nil
	})
}

func (s statusClient) Patch(ctx context.Context, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	return s.c.change(ctx, o, func(there client.Object) (client.Object, error) {
		next, err := patched(there, data)
		if err != nil {
			return nil, err
		}
		pod, status := there.DeepCopyObject().(*corev1.Pod), next.(*corev1.Pod).Status
		pod.Status, pod.UID, pod.ResourceVersion = status, next.GetUID(), next.GetResourceVersion()
		return pod, nil
	})
}

// change stores what becomes of an object by a write that was made from its present version.
func (c *apiClient) change(ctx context.Context, o client.Object, become func(there client.Object) (client.Object, error)) error {
	return c.write(ctx, func(a *api) error {
		there := a.get(kindOf(o), o.GetName())
		if there == nil {
			return apierrors.NewNotFound(resource(kindOf(o)), o.GetName())
		}
		next, err := become(there)
		switch {
		case err != nil:
			return err
		case next.GetUID() != there.GetUID() || next.GetResourceVersion() != there.GetResourceVersion():
			a.w.note("API server: conflict on %s", o.GetName())
			return conflict(o)
		}
		if is, ok := next.(*corev1.Pod); ok {
			was := there.(*corev1.Pod)
			added := func(f string) bool { return !slices.Contains(was.Finalizers, f) }
			if was.DeletionTimestamp != nil && slices.ContainsFunc(is.Finalizers, added) {
				return apierrors.NewForbidden(resource(podKind), is.Name, errors.New("it is being deleted"))
			}
			a.w.truth.written(was, is)
		}
		a.put(next)
		copyInto(next, o)
		return nil
	})
}

func patched(there client.Object, patch []byte) (client.Object, error) {
	text, err := json.Marshal(there)
	if err != nil {
		return nil, err
	}
	var into, from map[string]any
	if err := errors.Join(json.Unmarshal(text, &into), json.Unmarshal(patch, &from)); err != nil {
		return nil, err
	}
	if text, err = json.Marshal(mergePatch(into, from)); err != nil {
		return nil, err
	}
	next := reflect.New(reflect.TypeOf(there).Elem()).Interface().(client.Object)
	return next, json.Unmarshal(text, next)
}

// mergePatch is RFC 7396.
func mergePatch(into, patch map[string]any) map[string]any {
	if into == nil {
		into = map[string]any{}
	}
	for key, value := range patch {
		if value == nil {
			delete(into, key)
		} else if deeper, ok := value.(map[string]any); ok {
			below, _ := into[key].(map[string]any)
			into[key] = mergePatch(below, deeper)
		} else {
			into[key] = value
		}
	}
	return into
}

// write has the API server make a write of a controller: it may be away, or make the write and its
// answer is lost.
func (c *apiClient) write(ctx context.Context, effect func(*api) error) error {
	w := c.p.w
	return c.p.call(ctx, "api", func() error {
		fails := w.api.down || w.api.flaky > 0 && w.Draw("flaky", 100) < w.api.flaky
		if fails && (w.api.down || w.Chance("flaky lost", 50)) {
			return apierrors.NewInternalError(fmt.Errorf("simulated"))
		}
		if err := effect(w.api); err != nil || !fails {
			return err
		}
		w.note("API server: its answer is lost")
		return apierrors.NewTimeoutError("simulated: it was done", 1)
	})
}

// podsOf is what the API server itself says of a node.
func (p *process) podsOf(ctx context.Context, node string) (all []corev1.Pod, err error) {
	err = p.call(ctx, "api", func() error {
		if p.w.api.down {
			return errors.New("connection refused")
		}
		for _, pod := range p.w.api.pods() {
			if pod.Spec.NodeName == node {
				all = append(all, *pod.DeepCopy())
			}
		}
		return nil
	})
	return all, err
}
