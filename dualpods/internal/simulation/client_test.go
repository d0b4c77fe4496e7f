package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	"hotseat.dev/hotseat/dualpods/internal/servers/placement"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// apiClient is the API server and what is heard of it, for a controller process.
type apiClient struct {
	client.Client // nil: the controllers call nothing but what follows
	p             *process
}

func (c *apiClient) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	c.p.w.mu.Lock()
	defer c.p.w.mu.Unlock()
	k := kindOf(into)
	o := c.p.informer.objects[k][key.Name]
	if o == nil {
		return notFound(k, key.Name)
	}
	switch o := o.(type) {
	case *v1alpha1.InferenceServerConfig:
		o.DeepCopyInto(into.(*v1alpha1.InferenceServerConfig))
	case *v1alpha1.LauncherConfig:
		o.DeepCopyInto(into.(*v1alpha1.LauncherConfig))
	}
	return nil
}

func (c *apiClient) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	c.p.w.mu.Lock()
	defer c.p.w.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var lo client.ListOptions
	lo.ApplyOptions(opts)
	known := c.p.informer.objects[kindOf(into)]
	for _, name := range sorted(known) {
		switch into := into.(type) {
		case *v1alpha1.ClusterModelCacheList:
			into.Items = append(into.Items, *known[name].(*v1alpha1.ClusterModelCache).DeepCopy())
		case *v1alpha1.ModelCacheNodeGroupList:
			into.Items = append(into.Items, *known[name].(*v1alpha1.ModelCacheNodeGroup).DeepCopy())
		case *corev1.NodeList:
			into.Items = append(into.Items, *known[name].(*corev1.Node))
		case *corev1.PodList:
			if pod := known[name].(*corev1.Pod); indexed(pod, lo) {
				into.Items = append(into.Items, *pod)
			}
		}
	}
	return nil
}

func indexed(pod *corev1.Pod, lo client.ListOptions) bool {
	if value, is := lo.FieldSelector.RequiresExactMatch(modelcache.IndexStore); is {
		of := modelcache.IndexedStore(pod)
		return len(of) == 1 && of[0] == value
	}
	value, _ := lo.FieldSelector.RequiresExactMatch(placement.Index)
	of := placement.Indexed(pod)
	return len(of) == 1 && of[0] == value
}

func (c *apiClient) Status() client.SubResourceWriter { return statusClient{nil, c} }

type statusClient struct {
	client.SubResourceWriter // nil
	c                        *apiClient
}

// Update writes the status of a cache.
func (s statusClient) Update(ctx context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	wanted := o.(*v1alpha1.ClusterModelCache)
	return s.c.write(ctx, o, func(a *api, there client.Object) error {
		if there.GetResourceVersion() != o.GetResourceVersion() {
			return conflict(caches, o.GetName())
		}
		next := there.(*v1alpha1.ClusterModelCache).DeepCopy()
		wanted.Status.DeepCopyInto(&next.Status)
		a.w.note("API server: status of %s: %s", o.GetName(), told(&next.Status))
		a.w.checkStatus(s.c.p, next)
		a.put(next)
		return nil
	})
}

func told(s *v1alpha1.ClusterModelCacheStatus) (text string) {
	for _, n := range s.Nodes {
		text += fmt.Sprintf(" %s=%s(%s)", n.Node, n.State, n.Why)
	}
	return text + " " + s.Revision
}

func conflict(k kind, name string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: string(k)}, name, errors.New("it was changed"))
}

func (c *apiClient) Patch(ctx context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	k := kindOf(o)
	return c.write(ctx, o, func(a *api, there client.Object) error {
		next, err := patched(there, data)
		switch {
		case err != nil:
			return err
		case next.GetResourceVersion() != there.GetResourceVersion():
			a.w.note("API server: conflict on %s", o.GetName())
			return conflict(k, o.GetName())
		}
		a.w.note("API server: the controller writes %s %s", o.GetName(), data)
		a.w.checkPatch(c.p, there, next)
		a.put(next)
		return nil
	})
}

func patched(there client.Object, patch []byte) (client.Object, error) {
	text, err := json.Marshal(there)
	if err != nil {
		return nil, err
	}
	next := there.DeepCopyObject().(client.Object)
	var into, from map[string]any
	if err := errors.Join(json.Unmarshal(text, &into), json.Unmarshal(patch, &from)); err != nil {
		return nil, err
	}
	if text, err = json.Marshal(mergePatch(into, from)); err != nil {
		return nil, err
	}
	switch n := next.(type) {
	case *v1alpha1.ClusterModelCache:
		*n = v1alpha1.ClusterModelCache{}
	case *corev1.Node:
		*n = corev1.Node{}
	case *corev1.Pod:
		*n = corev1.Pod{}
	}
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

// write has the API server make a write of the controller: it may be away, refuse it, or
// make it and have its answer lost.
func (c *apiClient) write(ctx context.Context, o client.Object, effect func(*api, client.Object) error) error {
	w, k := c.p.w, kindOf(o)
	return c.p.call(ctx, "api", func() error {
		a := w.api
		fails := a.down || a.flaky > 0 && w.Draw("flaky", 100) < a.flaky
		there := a.objects[k][o.GetName()]
		var err error
		switch {
		case fails && (a.down || w.Chance("flaky lost", 50)):
			err = apierrors.NewInternalError(errors.New("simulated"))
		case there == nil:
			return notFound(k, o.GetName())
		case a.refuses[o.GetName()]:
			err = apierrors.NewForbidden(schema.GroupResource{Resource: string(k)}, o.GetName(), errors.New("simulated: a policy says no"))
		default:
			if err := effect(a, there); err != nil || !fails {
				if err == nil {
					w.writes++
				}
				return err
			}
			w.note("API server: its answer is lost")
			err = apierrors.NewTimeoutError("simulated: it was done", 1)
		}
		if k == pods {
			w.trouble = later(w.trouble, time.Now())
		}
		return err
	})
}
