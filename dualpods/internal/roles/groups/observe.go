package groups

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Index is the field that the cache indexes Pods, Services, EndpointSlices, ControllerRevisions and
// RoleScalers by: the UID of the ModelServing that controls them.
const Index = "modelServing"

// Indexed returns an object's values in the index.
func Indexed(o client.Object) []string {
	owner := podmeta.ServingOf(o)
	if owner == nil {
		return nil
	}
	return []string{string(owner.UID)}
}

// observe reads the World.
func (c *Controller) observe(ctx context.Context, serving *v1alpha1.ModelServing) (*World, error) {
	w := &World{Now: c.opts.Now(), Began: c.begun(), Serving: serving, Revision: hash(content(&serving.Spec.Template)), Problems: checkSubgroups(serving), Domains: map[string]string{}, plans: map[string]*plan{}}
	present, problems := newPlan(w.Revision, &serving.Spec.Template, c.opts.Image)
	w.Problems = append(w.Problems, problems...)
	if c.opts.Gangs != nil {
		w.Gangs = func(group string) string { return c.opts.Gangs.Waits(serving.UID, group) }
	}
	var revisions appsv1.ControllerRevisionList
	if err := c.listOwned(ctx, serving, &revisions); err != nil {
		return nil, err
	}
	for i := range revisions.Items {
		w.Revisions = append(w.Revisions, &revisions.Items[i])
		c.heard("ControllerRevision", &revisions.Items[i])
		if p := planOf(serving, &revisions.Items[i], c.opts.Image); p != nil {
			w.plans[p.revision] = p
		}
	}
	w.plans[w.Revision] = present
	name := revisionName(serving, w.Revision)
	w.Unheard = c.unheard("ControllerRevision", serving.Namespace, name)
	whose, err := c.other(ctx, serving, name, &appsv1.ControllerRevision{})
	if err != nil {
		return nil, err
	}
	w.Earlier = whose == Earlier
	members, err := c.owned(ctx, serving)
	if err == nil {
		err = errors.Join(c.observeScalers(ctx, w), c.observeKubernetes(w))
	}
	if err != nil {
		return nil, err
	}
	w.chooseRevisions(members)
	for _, p := range w.wantedPlaces() {
		m := members[p.name()]
		if m == nil {
			m = &Member{}
		}
		m.place, m.Wanted = p, true
		delete(members, p.name())
		w.Members = append(w.Members, m)
		if err := c.observeOthers(ctx, w, m); err != nil {
			return nil, err
		}
	}
	surplus := len(w.Members)
	for _, m := range members {
		w.Members = append(w.Members, m)
	}
	slices.SortFunc(w.Members[surplus:], func(a, b *Member) int { return backwards(a.place, b.place) })
	launchers := dualpods.NewLaunchers(c.opts.API)
	for _, m := range w.Members {
		if err := errors.Join(c.observeServer(ctx, launchers, m), c.observeDomain(ctx, w, m)); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// observeKubernetes reads whether PodGroups of Kubernetes give the Pods of groups nodes together.
func (c *Controller) observeKubernetes(w *World) (err error) {
	if c.opts.PodGroups != nil && w.Serving.Spec.MayUseKubernetes() {
		w.Kubernetes, err = c.opts.PodGroups()
	}
	return err
}

// owned returns what a ModelServing owns, by the name of the Pod.
func (c *Controller) owned(ctx context.Context, serving *v1alpha1.ModelServing) (map[string]*Member, error) {
	members := map[string]*Member{}
	member := func(o client.Object) *Member {
		p, ours := placeOf(serving, o.GetName())
		if !ours { // somebody made it the ModelServing's: it is left alone
			return &Member{}
		}
		m := members[o.GetName()]
		if m == nil {
			m = &Member{place: p}
			members[o.GetName()] = m
		}
		return m
	}
	var all corev1.PodList
	var services corev1.ServiceList
	var found discoveryv1.EndpointSliceList
	for _, list := range []client.ObjectList{&all, &services, &found} {
		if err := c.listOwned(ctx, serving, list); err != nil {
			return nil, err
		}
	}
	for i := range all.Items {
		m := member(&all.Items[i])
		m.Pod.Is, m.Removed = &all.Items[i], c.isRemoved(&all.Items[i])
		c.heard("Pod", &all.Items[i])
	}
	for i := range services.Items {
		member(&services.Items[i]).Service.Is = &services.Items[i]
		c.heard("Service", &services.Items[i])
	}
	for i := range found.Items {
		member(&found.Items[i]).Slice.Is = &found.Items[i]
		c.heard("EndpointSlice", &found.Items[i])
	}
	return members, nil
}

func (c *Controller) listOwned(ctx context.Context, serving *v1alpha1.ModelServing, into client.ObjectList) error {
	by := client.MatchingFields{Index: string(serving.UID)}
	if err := c.opts.API.List(ctx, into, client.InNamespace(serving.Namespace), by, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("cannot list what ModelServing %s owns: %w", client.ObjectKeyFromObject(serving), err)
	}
	return nil
}

// observeOthers reads whose object has the name of a Pod or Service that a wanted member lacks.
func (c *Controller) observeOthers(ctx context.Context, w *World, m *Member) (err error) {
	serving := w.Serving
	if m.Pod.Is == nil {
		m.Pod.Other, err = c.other(ctx, serving, m.name(), &corev1.Pod{})
		m.Pod.Unheard = c.unheard("Pod", serving.Namespace, m.name())
	}
	if !w.hasService(m) {
		return err
	}
	if err == nil && m.Service.Is == nil {
		m.Service.Other, err = c.other(ctx, serving, m.name(), &corev1.Service{})
		m.Service.Unheard = c.unheard("Service", serving.Namespace, m.name())
	}
	m.Slice.Unheard = m.Slice.Is == nil && c.unheard("EndpointSlice", serving.Namespace, m.name())
	return err
}

// other returns whose object has a name that the ModelServing needs and does not have.
func (c *Controller) other(ctx context.Context, serving *v1alpha1.ModelServing, name string, into client.Object) (Other, error) {
	err := c.opts.API.Get(ctx, client.ObjectKey{Namespace: serving.Namespace, Name: name}, into)
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	switch owner := podmeta.ServingOf(into); {
	case metav1.IsControlledBy(into, serving): // it came after the list
		return "", nil
	case owner != nil && owner.Name == serving.Name:
		return Earlier, nil
	default:
		return Stranger, nil
	}
}

// observeServer reads where the server of a Pod runs.
func (c *Controller) observeServer(ctx context.Context, launchers *dualpods.Launchers, m *Member) error {
	pod := m.Pod.Is
	switch {
	case pod == nil:
		return nil
	case !podmeta.IsRequester(pod):
		if !podmeta.Finished(pod) && pod.Status.PodIP != "" {
			m.Target = &Target{Pod: pod, Ports: portsOfPod(pod), Serves: podmeta.Ready(pod)}
		}
		return nil
	}
	m.SwapTo = podmeta.ReadSwapTo(pod)
	launcher, record, err := launchers.RecordOf(ctx, pod)
	if err != nil || launcher == nil || podmeta.Finished(launcher) || launcher.Status.PodIP == "" {
		return err
	}
	view := c.opts.Views.One(string(launcher.UID), record.Instance)
	m.Target = &Target{Pod: launcher, Serves: podmeta.Ready(pod), Unknown: view.Instances == nil}
	m.Server, m.IsReady = podmeta.ServerOf(pod, record.SwapKey()), podmeta.ReadStatus(pod).Reason == v1alpha1.ReasonWaitsForRanks
	m.Bound = &Bound{Launcher: launcher, Record: record, Known: view.Connected}
	if i, ok := view.Instances[record.Instance]; ok {
		m.Bound.Instance = &i
		if i.Port > 0 {
			m.Target.Ports = []discoveryv1.EndpointPort{portOf(instancePort, int32(i.Port), corev1.ProtocolTCP)}
		}
	}
	if c.opts.Swaps != nil {
		m.Bound.Swap = c.opts.Swaps.SwapOf(launcher.UID, record)
	}
	c.observeChange(m)
	return nil
}

// observeChange reads how far the change of a requester's record is.
func (c *Controller) observeChange(m *Member) {
	next, on := m.Bound.Record.Next(), m.Bound.Launcher.UID
	if next == nil {
		return
	}
	m.NextServer = podmeta.ServerOf(m.Pod.Is, next.SwapKey())
	if i, ok := c.opts.Views.One(string(on), next.Instance).Instances[next.Instance]; ok {
		m.Bound.NextInstance = &i
	}
	if c.opts.Swaps != nil {
		m.Bound.Next = c.opts.Swaps.SwapOf(on, next)
	}
}
