package binding

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

type silentRecorder struct{}

func (silentRecorder) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {
}

func simAccess(pod *corev1.Pod) nodeview.Access {
	if isForged(pod) {
		return nodeview.Access{Token: "its own"}
	}
	return nodeview.Access{}
}

// simAPI is the API server, with the kinds of objects that the controller reads.
// What is stored is never changed: a write stores another object.
type simAPI struct {
	s         *sim
	version   int
	pods      map[string]*corev1.Pod // by name; all in one namespace
	nodes     map[string]*corev1.Node
	configs   map[string]*v1alpha1.InferenceServerConfig
	nodesEver map[string]bool
	down      bool
	flaky     uint64 // percent of writes that fail
	caches    []*simCache
	behind    time.Duration             // how far the cache of the next controller process is, as it starts
	standby   *simCache                 // it; nil: that has all there is
	unheard   map[string]bool           // versions of the writes whose answers were lost
	compact   map[*corev1.Pod]cachedPod // each version that a cache has had
	others    map[string]int            // version of each Pod as it was changed last by somebody else than the controller, or by a write of which it has not heard
}

func newSimAPI(s *sim) *simAPI {
	return &simAPI{s: s, compact: map[*corev1.Pod]cachedPod{}, pods: map[string]*corev1.Pod{}, nodes: map[string]*corev1.Node{}, configs: map[string]*v1alpha1.InferenceServerConfig{}, nodesEver: map[string]bool{}, unheard: map[string]bool{}, others: map[string]int{}}
}

// simCache is what a controller process knows of the objects: each kind lags
// behind, in the order of the changes.
type simCache struct {
	inc     *incarnation
	pods    map[string]*corev1.Pod
	nodes   map[string]*corev1.Node
	configs map[string]*v1alpha1.InferenceServerConfig
	last    map[string]time.Time
	heard   map[string]time.Time // of a Pod, when it heard of it last
}

// longestLag is how late a cache of a controller hears of a change at most.
const longestLag = 200 * time.Millisecond

// tell brings a change to the cache, after those of its kind before it.
func (a *simAPI) tell(kind string, do func(*simCache)) {
	for _, c := range a.caches {
		lag := a.s.between("lag "+kind, 200*time.Microsecond, longestLag/50)
		if a.s.chance("long lag", 5) {
			lag *= 50
		}
		if c == a.standby {
			lag += a.behind
		}
		at := time.Now().Add(lag)
		if !at.After(c.last[kind]) {
			at = c.last[kind].Add(time.Microsecond)
		}
		c.last[kind] = at
		a.s.after(time.Until(at), func() { do(c) })
	}
}

func (a *simAPI) nextVersion() string {
	a.version++
	return strconv.Itoa(a.version)
}

// putPod stores a Pod; one that is being deleted and that nothing keeps is gone.
func (a *simAPI) putPod(pod *corev1.Pod) {
	old := a.pods[pod.Name]
	pod.ResourceVersion = a.nextVersion()
	gone := pod.DeletionTimestamp != nil && len(pod.Finalizers) == 0 && *pod.DeletionGracePeriodSeconds == 0
	if gone {
		delete(a.pods, pod.Name)
	} else {
		a.pods[pod.Name] = pod
	}
	cached := a.cached(pod)
	a.tell("pods", func(c *simCache) {
		c.heard[pod.Name] = time.Now()
		if gone {
			delete(c.pods, pod.Name)
		} else {
			c.pods[pod.Name] = cached
		}
		ours := func(p *corev1.Pod) bool {
			return p != nil && (podmeta.IsAgent(p) || dualpods.LooksLike(p) != dualpods.KindOther)
		}
		if ours(pod) || ours(old) {
			c.inc.enqueue(pod.Spec.NodeName)
			c.inc.hears(pod.UID)
			if old != nil && old.Spec.NodeName != pod.Spec.NodeName {
				c.inc.enqueue(old.Spec.NodeName)
			}
		}
	})
	if gone {
		a.s.note("Pod %s is gone", pod.Name)
		a.s.podGone(pod)
		return
	}
	a.s.launcherChanged(pod)
}

// changePod stores a Pod with a change that somebody else than the controller makes.
func (a *simAPI) changePod(name string, change func(*corev1.Pod)) {
	if pod := a.pods[name]; pod != nil {
		pod = pod.DeepCopy()
		change(pod)
		a.putPod(pod)
		a.others[name] = a.version
	}
}

// changeThis is changePod for a Pod that may have gone, and another one come under its name.
func (a *simAPI) changeThis(of *corev1.Pod, change func(*corev1.Pod)) {
	if pod := a.pods[of.Name]; pod != nil && pod.UID == of.UID {
		a.changePod(of.Name, change)
	}
}

// deletePod asks for the deletion of a Pod.
func (a *simAPI) deletePod(name string, grace int64) {
	pod := a.pods[name]
	if pod == nil {
		return
	}
	if pod.Spec.NodeName == "" || len(pod.Status.ContainerStatuses) == 0 {
		grace = 0
	}
	first := pod.DeletionTimestamp == nil
	a.changePod(name, func(p *corev1.Pod) {
		if first || grace < *p.DeletionGracePeriodSeconds {
			ends := metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second))
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &ends, &grace
		}
	})
	if first {
		a.s.podDeleted(pod)
	}
}

func (a *simAPI) putNode(node *corev1.Node) {
	node.ResourceVersion = a.nextVersion()
	a.nodes[node.Name] = node
	a.nodesEver[node.Name] = true
	a.tell("nodes", func(c *simCache) {
		c.nodes[node.Name] = node
		c.inc.enqueue(node.Name)
	})
}

func (a *simAPI) dropNode(name string) {
	delete(a.nodes, name)
	a.tell("nodes", func(c *simCache) {
		delete(c.nodes, name)
		c.inc.enqueue(name)
	})
}

func (a *simAPI) putConfig(config *v1alpha1.InferenceServerConfig) {
	config.ResourceVersion = a.nextVersion()
	a.s.edited = time.Now()
	a.configs[config.Name] = config
	a.tell("configs", func(c *simCache) {
		c.configs[config.Name] = config
		c.inc.enqueueRequesters()
	})
}

func (a *simAPI) dropConfig(name string) {
	delete(a.configs, name)
	a.tell("configs", func(c *simCache) {
		delete(c.configs, name)
		c.inc.enqueueRequesters()
	})
}

// enqueueRequesters has all nodes with requesters looked at.
func (inc *incarnation) enqueueRequesters() {
	if inc == nil {
		return
	}
	for _, name := range sortedKeys(inc.cache.pods) {
		if podmeta.IsRequester(inc.cache.pods[name]) {
			inc.enqueue(inc.cache.pods[name].Spec.NodeName)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// simClient is the API server and its cache for a controller process.
type simClient struct {
	client.Client // nil: the controller calls nothing but what follows
	inc           *incarnation
}

func notFound(kind, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, name)
}

func (c *simClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	c.inc.s.mu.Lock()
	defer c.inc.s.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch into := into.(type) {
	case *corev1.Node:
		if node := c.inc.cache.nodes[key.Name]; node != nil {
			node.DeepCopyInto(into)
			return nil
		}
	case *v1alpha1.LauncherConfig:
		if owner := simOwner(key.Name); owner.Name != "" {
			into.Namespace, into.Name, into.UID = key.Namespace, key.Name, owner.UID
			into.Spec.Population.NodeSelector = map[string]string{simLabel: "yes"}
			if !c.inc.s.asksKubelet {
				into.Spec.AllocationCheck.Mode = v1alpha1.AllocationCheckNone
			}
			return nil
		}
	case *v1alpha1.InferenceServerConfig:
		if config := c.inc.cache.configs[key.Name]; config != nil {
			config.DeepCopyInto(into)
			return nil
		}
	}
	return notFound(fmt.Sprintf("%T", into), key.Name)
}

func (c *simClient) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	c.inc.s.mu.Lock()
	defer c.inc.s.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var lo client.ListOptions
	lo.ApplyOptions(opts)
	node, _ := lo.FieldSelector.RequiresExactMatch(dualpods.IndexNode)
	pods := into.(*corev1.PodList)
	for _, name := range sortedKeys(c.inc.cache.pods) {
		if pod := c.inc.cache.pods[name]; pod.Spec.NodeName == node {
			pods.Items = append(pods.Items, *pod) // as the cache does: nobody writes to what it shares
		}
	}
	return nil
}

func (c *simClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	var do client.DeleteOptions
	do.ApplyOptions(opts)
	return c.write(ctx, o.GetName(), func(a *simAPI) error {
		pod := a.pods[o.GetName()]
		switch {
		case pod == nil:
			return notFound("pods", o.GetName())
		case do.Preconditions != nil && *do.Preconditions.UID != pod.UID:
			return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, pod.Name, fmt.Errorf("another UID"))
		}
		a.s.note("API server: controller deletes %s", pod.Name)
		a.s.deletes(c.inc, pod)
		a.deletePod(pod.Name, 30)
		return nil
	})
}

func (c *simClient) Patch(ctx context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	return c.patch(ctx, o, patch, false)
}

func (c *simClient) Status() client.SubResourceWriter { return simStatus{nil, c} }

type simStatus struct {
	client.SubResourceWriter // nil
	c                        *simClient
}

func (w simStatus) Patch(ctx context.Context, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return w.c.patch(ctx, o, patch, true)
}

func (c *simClient) write(ctx context.Context, name string, effect func(*simAPI) error) error {
	s := c.inc.s
	return c.inc.call(ctx, "api", func() error {
		fails := s.api.down || s.api.flaky > 0 && s.draw("flaky", 100) < s.api.flaky
		if fails && (s.api.down || s.chance("flaky lost", 50)) {
			return apierrors.NewInternalError(fmt.Errorf("simulated"))
		}
		if err := effect(s.api); err != nil || !fails {
			return err
		}
		s.api.unheard[strconv.Itoa(s.api.version)] = true
		s.api.others[name] = s.api.version
		return apierrors.NewTimeoutError("simulated: it was done", 1)
	})
}

func (c *simClient) patch(ctx context.Context, o client.Object, patch client.Patch, status bool) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	into := o.(*corev1.Pod)
	return c.write(ctx, o.GetName(), func(a *simAPI) error {
		old := a.pods[o.GetName()]
		if old == nil {
			return notFound("pods", o.GetName())
		}
		pod, err := patched(old, data, patch.Type())
		if err != nil {
			return err
		}
		switch {
		case pod.UID != old.UID:
			return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, pod.Name, fmt.Errorf("another UID"))
		case pod.ResourceVersion != old.ResourceVersion:
			a.s.note("API server: conflict on %s", old.Name)
			return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, pod.Name, fmt.Errorf("it was changed"))
		}
		if status {
			next := old.DeepCopy()
			next.Status = pod.Status
			pod = next
		} else {
			pod.Status = *old.Status.DeepCopy()
		}
		a.s.wrote(c.inc, old, pod)
		if old.DeletionTimestamp != nil && slices.ContainsFunc(pod.Finalizers, func(f string) bool { return !slices.Contains(old.Finalizers, f) }) {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, pod.Name, fmt.Errorf("no new finalizers can be added if the object is being deleted"))
		}
		a.s.countWrite(old, pod)
		a.s.note("API server: controller writes %s %s", pod.Name, strings.ReplaceAll(string(data), `\"`, `'`))
		a.putPod(pod)
		pod.DeepCopyInto(into)
		return nil
	})
}

func patched(old *corev1.Pod, patch []byte, how types.PatchType) (*corev1.Pod, error) {
	text, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	if how == types.StrategicMergePatchType {
		text, err = strategicpatch.StrategicMergePatch(text, patch, corev1.Pod{})
	} else {
		var a, b map[string]any
		if err := json.Unmarshal(text, &a); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(patch, &b); err != nil {
			return nil, err
		}
		text, err = json.Marshal(mergePatch(a, b))
	}
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	return pod, json.Unmarshal(text, pod)
}

// mergePatch is RFC 7396.
func mergePatch(into, patch map[string]any) map[string]any {
	if into == nil {
		into = map[string]any{}
	}
	for key, value := range patch {
		if value == nil {
			delete(into, key)
			continue
		}
		if deeper, ok := value.(map[string]any); ok {
			below, _ := into[key].(map[string]any)
			into[key] = mergePatch(below, deeper)
			continue
		}
		into[key] = value
	}
	return into
}

// countWrite counts a write of the controller for the requester it is about.
func (s *sim) countWrite(old, pod *corev1.Pod) {
	if !simIsLauncher(pod) {
		s.writes[pod.UID]++
		return
	}
	before, after := map[string]string{}, pod.Annotations
	if old.Annotations != nil {
		before = old.Annotations
	}
	records, _ := podmeta.ReadBindings(pod)
	for _, b := range records {
		key := podmeta.AnnotationBindingPrefix + b.Instance
		if before[key] != after[key] {
			s.writes[b.RequesterUID]++
		}
	}
}
