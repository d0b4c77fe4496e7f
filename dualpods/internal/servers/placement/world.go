package placement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// observe reads the World, and returns the Pods that wait for a decision.
func (c *Controller) observe(ctx context.Context) (*World, map[types.UID]*corev1.Pod, error) {
	w := &World{Now: c.opts.Now(), LeadingSince: c.leadingSince, CandidateIDs: c.opts.Views.CandidateIDs, Taken: map[string]map[string]bool{}, Promised: map[Sleeper]bool{}}
	lists := map[string]*corev1.PodList{gated: {}, promised: {}, provider: {}}
	if err := c.list(ctx, lists[gated], gated); err != nil {
		return nil, nil, err
	}
	pods, err := c.waiting(ctx, w, lists[gated])
	if err != nil || len(w.Waiting) == 0 {
		return w, nil, err
	}
	if err := errors.Join(c.list(ctx, lists[promised], promised), c.list(ctx, lists[provider], provider)); err != nil {
		return nil, nil, err
	}
	if w.Nodes, err = c.nodes(ctx); err == nil {
		w.Claims, err = c.claims(ctx)
	}
	if err == nil && c.opts.Caches {
		w.Caches, err = c.caches(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	bound, err := c.launchers(ctx, w, lists[provider].Items)
	if err != nil {
		return nil, nil, err
	}
	w.keepPromises(lists[promised].Items, bound)
	return w, pods, nil
}

// waiting adds to the World the requesters that wait for a decision, and the promises to
// those whose gate the cache may still show. It returns the Pods of the former.
func (c *Controller) waiting(ctx context.Context, w *World, list *corev1.PodList) (map[types.UID]*corev1.Pod, error) {
	pods, still := map[types.UID]*corev1.Pod{}, map[types.UID]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		still[pod.UID] = true
		if c.firstSeen[pod.UID].IsZero() {
			c.firstSeen[pod.UID] = w.Now
		}
		if _, done := c.written[pod.UID]; !done && len(pod.Spec.SchedulingGates) == 1 && !c.failed[pod.UID].until.After(w.Now) {
			r, err := c.requester(ctx, pod)
			if err != nil {
				return nil, err
			}
			pods[pod.UID] = pod
			w.Waiting = append(w.Waiting, r)
		}
	}
	for _, p := range c.written { // the cache may not show them yet
		w.promise(p)
	}
	for uid, r := range c.failed {
		if still[uid] && r.until.After(w.Now) {
			w.promise(r.maybeWritten)
		}
	}
	maps.DeleteFunc(c.firstSeen, func(uid types.UID, _ time.Time) bool { return !still[uid] })
	maps.DeleteFunc(c.written, func(uid types.UID, _ podmeta.Placement) bool { return !still[uid] })
	maps.DeleteFunc(c.failed, func(uid types.UID, r failedWrite) bool { return !still[uid] || !r.until.After(w.Now) })
	return pods, nil
}

func (c *Controller) list(ctx context.Context, into *corev1.PodList, value string) error {
	if err := c.opts.API.List(ctx, into, client.MatchingFields{Index: value}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("cannot list the Pods that placement looks at: %w", err)
	}
	return nil
}

// nodes returns the nodes of the cluster, by name.
func (c *Controller) nodes(ctx context.Context) (map[string]*corev1.Node, error) {
	var list corev1.NodeList
	if err := c.opts.API.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list the nodes: %w", err)
	}
	all := make(map[string]*corev1.Node, len(list.Items))
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	return all, nil
}

// caches returns the ClusterModelCaches that are not being deleted, the oldest first.
func (c *Controller) caches(ctx context.Context) (all []Cache, err error) {
	var list v1alpha1.ClusterModelCacheList
	if err := c.opts.API.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list the ClusterModelCaches: %w", err)
	}
	items := slices.Clone(list.Items)
	slices.SortFunc(items, func(a, b v1alpha1.ClusterModelCache) int { return modelcache.Older(&a, &b) })
	for i := range items {
		o := &items[i]
		if !o.DeletionTimestamp.IsZero() {
			continue
		}
		all = append(all, Cache{Name: o.Name, Model: modelcache.VersionOf(o.Spec.Source, o.Status.Revision), Scheduling: o.Spec.Scheduling})
	}
	return all, nil
}

// claims returns the claims that have a whole model.
func (c *Controller) claims(ctx context.Context) (all []Claim, err error) {
	var list v1alpha1.ModelCacheList
	if err := c.opts.API.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list the ModelCaches: %w", err)
	}
	for i := range list.Items {
		if o := &list.Items[i]; meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionAvailable) {
			model := modelcache.VersionOf(o.Spec.Source, o.Status.Revision)
			model.ID, model.Lacks = o.Status.ModelID, o.Status.Lacks
			all = append(all, Claim{Namespace: o.Namespace, Name: o.Status.ClaimName, Model: model})
		}
	}
	return all, nil
}

// mountedClaims returns the claims that a launcher mounts to read models from them.
func mountedClaims(pod *corev1.Pod) (names []string) {
	for _, v := range pod.Spec.Volumes {
		claim := v.PersistentVolumeClaim
		if claim == nil {
			continue
		}
		serving := podmeta.Container(&pod.Spec, podmeta.ServingContainer)
		if serving != nil && slices.ContainsFunc(serving.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == v.Name && m.MountPath == podmeta.ClaimDir(claim.ClaimName)
		}) {
			names = append(names, claim.ClaimName)
		}
	}
	return names
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// promiseTimeout bounds the reservation of a sleeper for a requester that is not bound yet:
// the scheduler may have chosen another node, or none.
const promiseTimeout = 30 * time.Second

func (w *World) promise(p podmeta.Placement) {
	if ago := w.Now.Sub(p.Since); p.Instance != "" && ago < promiseTimeout && ago > -promiseTimeout {
		w.Promised[Sleeper{p.Launcher, p.Instance}] = true
	}
}

// mayStillUse reports whether a Pod may still be bound to its promised sleeper. The sleeper's
// launcher must be in the Pod's namespace, and the Pod must be on no other node.
func (w *World) mayStillUse(pod *corev1.Pod, p podmeta.Placement) bool {
	return slices.ContainsFunc(w.Launchers, func(l Launcher) bool {
		return l.UID == p.Launcher && l.Namespace == pod.Namespace && (pod.Spec.NodeName == "" || pod.Spec.NodeName == l.Node)
	})
}

// requester reads a requester that carries the gate.
func (c *Controller) requester(ctx context.Context, pod *corev1.Pod) (r Requester, err error) {
	r = Requester{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Created: pod.CreationTimestamp.Time, Spec: &pod.Spec}
	if firstSeen := c.firstSeen[pod.UID]; r.Created.After(firstSeen) && !firstSeen.IsZero() { // the clock of the API server is ahead
		r.Created = firstSeen
	}
	r.Form, r.Problems, err = form.Source{API: c.opts.API}.Read(ctx, pod)
	return r, err
}

// launchers adds the launchers among these Pods to the World, and returns the requesters that
// are bound to them. An orphan counts for nothing.
func (c *Controller) launchers(ctx context.Context, w *World, pods []corev1.Pod) (bound map[dualpods.Identity]bool, err error) {
	bound = map[dualpods.Identity]bool{}
	launchers := dualpods.NewLaunchers(c.opts.API)
	for i := range pods {
		pod := &pods[i]
		kind, config, err := launchers.KindOf(ctx, pod)
		if err != nil {
			return nil, err
		}
		if kind == dualpods.KindLauncher {
			c.launcher(w, pod, launchers.TakesRequesters(config, w.Nodes[pod.Spec.NodeName]), bound)
		}
	}
	slices.SortFunc(w.Launchers, func(a, b Launcher) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
	})
	return bound, nil
}

// launcher adds the taken GPUs of a launcher to the World, and the launcher if it takes new
// requesters.
func (c *Controller) launcher(w *World, pod *corev1.Pod, takes bool, bound map[dualpods.Identity]bool) {
	taken := w.Taken[pod.Spec.NodeName]
	if taken == nil {
		taken = map[string]bool{}
		w.Taken[pod.Spec.NodeName] = taken
	}
	take := func(gpus []string) {
		for _, uuid := range gpus {
			taken[uuid] = true
		}
	}
	bindings, _ := podmeta.ReadBindings(pod)
	for i := range bindings {
		bound[dualpods.IdentityIn(&bindings[i])] = true
		take(bindings[i].GPUs)
	}
	instances := map[string]Instance{}
	view := c.opts.Views.Pick(string(pod.UID), func(id string, i launcherapi.Instance) bool {
		instances[id] = Instance{State: i.State, GPUUUIDs: i.GPUUUIDs, LastUsedAt: i.LastUsedAt}
		if state := launcher.State(i.State); state != launcher.Sleeping && !state.Ended() {
			take(i.GPUUUIDs)
		}
		return false
	})
	if view.Instances == nil {
		instances = nil
	}
	is := dualpods.ProviderOf(pod, view.LostFor(w.Now))
	if !takes || is.Ended || is.Stage == dualpods.Leaving {
		return
	}
	l := Launcher{
		Provider: is, Name: pod.Name, Node: pod.Spec.NodeName,
		Since: view.Lost, Silent: !view.Connected, Instances: instances, Models: view.Models,
		Store: pod.Labels[podmeta.LabelModelNodeGroup] != "",
	}
	if len(w.Claims) > 0 {
		l.Claims = mountedClaims(pod)
	}
	if view.Connected { // its models have a stream of their own
		l.Since = view.ModelsLost
	}
	if l.Since.IsZero() { // this process is about to listen to it
		l.Since = latest(c.leadingSince, pod.CreationTimestamp.Time)
	}
	w.Launchers = append(w.Launchers, l)
}
