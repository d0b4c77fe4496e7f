package placement

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// These tests use a fake API server, which can refuse writes on demand. The tests in
// test/cluster/e2e use a real one.

type views map[string]nodeview.View

func (v views) Pick(key string, keep func(id string, i launcherapi.Instance) bool) nodeview.View {
	view := v[key]
	return view.Pick(keep)
}

func (v views) CandidateIDs(modelref.Name) []string { return []string{"id"} }

// gatedPod returns a requester of one GPU that carries the gate.
func gatedPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now), Annotations: map[string]string{
			podmeta.AnnotationInferenceServerConfig: "config",
		}},
		Spec: corev1.PodSpec{
			SchedulingGates: []corev1.PodSchedulingGate{{Name: podmeta.SchedulingGate}},
			Containers: []corev1.Container{{
				Name: podmeta.ServingContainer, Image: "requester",
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{podmeta.ResourceGPU: resource.MustParse("1")}},
			}},
		},
	}
}

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

// launcherConfig returns the LauncherConfig of all launchers.
func launcherConfig() *v1alpha1.LauncherConfig {
	return &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "pool"}}
}

// launcherPod returns a ready launcher; its UID is its name.
func launcherPod(name, node string, age time.Duration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now.Add(-age)), Labels: map[string]string{
			podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: "pool",
		}, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(launcherConfig(), v1alpha1.GroupVersion.WithKind("LauncherConfig"))}},
		Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: podmeta.ServingContainer, Image: image}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

func serverConfig() *v1alpha1.InferenceServerConfig {
	c := &v1alpha1.InferenceServerConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "config"}}
	c.Spec.LauncherConfigName = "pool"
	c.Spec.ModelServerConfig.Args = []string{"org/llama"}
	c.Spec.ModelServerConfig.Port = 8000
	return c
}

// has returns the view of a launcher that has a model on disk.
func has(uri string) nodeview.View {
	return nodeview.View{Connected: true, Instances: map[string]launcherapi.Instance{}, Models: map[string]nodeview.Model{
		"id": nodeview.NewModel(launcherapi.Model{ID: "id", URI: uri, Refs: []string{"main"}, State: launcherapi.ModelReady}),
	}}
}

// cluster is a controller with a fake API server.
type cluster struct {
	t      *testing.T
	api    client.Client
	events *events.FakeRecorder
	*Controller
}

func newCluster(t *testing.T, faults interceptor.Funcs, views views, objects ...client.Object) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	c := &cluster{t: t, events: events.NewFakeRecorder(100)}
	c.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, launcherConfig())...).WithInterceptorFuncs(faults).
		WithIndex(&corev1.Pod{}, Index, func(o client.Object) []string { return Indexed(o.(*corev1.Pod)) }).Build()
	c.Controller = New(Options{API: c.api, Views: views, Recorder: c.events, Caches: true, Now: func() time.Time { return now }})
	return c
}

func (c *cluster) pass() reconcile.Result {
	c.t.Helper()
	result, err := c.Reconcile(c.t.Context(), reconcile.Request{})
	require.NoError(c.t, err)
	return result
}

func (c *cluster) pod(name string) *corev1.Pod {
	c.t.Helper()
	var pod corev1.Pod
	require.NoError(c.t, c.api.Get(c.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, &pod))
	return &pod
}

func TestRequesterPrefersNodesWhoseLauncherReadsItsClaim(t *testing.T) {
	cache := &v1alpha1.ModelCache{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine"}, Spec: v1alpha1.ModelCacheSpec{Source: v1alpha1.ModelSource{URI: "hf://org/llama"}}}
	cache.Status = v1alpha1.ModelCacheStatus{ClaimName: "models", ModelID: "id", Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue}}}
	fetched := cache.DeepCopy()
	fetched.Name, fetched.Status.ClaimName, fetched.Status.Conditions[0].Status = "other", "others", metav1.ConditionFalse
	reads := func(name, node, claim, at string) *corev1.Pod {
		pod := launcherPod(name, node, time.Hour)
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: at}}
		return pod
	}
	empty := nodeview.View{Connected: true, Instances: map[string]launcherapi.Instance{}}
	lacks := cache.DeepCopy()
	lacks.Name, lacks.Status.ClaimName, lacks.Status.Lacks = "config-alone", "others", true
	c := newCluster(t, interceptor.Funcs{}, views{"l1": empty, "l2": empty, "l3": empty}, gatedPod("r"), serverConfig(), cache, fetched, lacks, node("n1"), node("n2"), node("n3"),
		reads("l1", "n1", "others", podmeta.ClaimDir("others")), reads("l2", "n2", "models", podmeta.ClaimDir("models")), reads("l3", "n3", "models", "/data"))
	c.opts.Caches = false // as in a release for one namespace
	c.pass()
	terms := c.pod("r").Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	require.Len(t, terms, 1)
	assert.Equal(t, []string{"n2"}, terms[0].Preference.MatchFields[0].Values)
	assert.Equal(t, "Normal Placed its model is on PersistentVolumeClaim models, which the launcher of node n2 reads", <-c.events.Events)
}

func TestOneWriteAddsPreferencesAndRemovesTheGate(t *testing.T) {
	writes := 0
	c := newCluster(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		writes++
		return c.Patch(ctx, o, p, opts...)
	}}, views{"l1": has("hf://org/llama"), "l2": has("hf://org/other")},
		gatedPod("r"), serverConfig(), node("n1"), node("n2"), launcherPod("l1", "n1", time.Hour), launcherPod("l2", "n2", time.Hour))
	assert.Zero(t, c.pass())
	pod := c.pod("r")
	assert.Empty(t, pod.Spec.SchedulingGates)
	terms := pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	require.Len(t, terms, 1)
	assert.Equal(t, []string{"n1"}, terms[0].Preference.MatchFields[0].Values)
	told, ok := podmeta.ReadPlacement(pod)
	assert.True(t, ok)
	assert.Equal(t, "its model is on the disk of node n1", told.Why)
	assert.Contains(t, <-c.events.Events, "Placed")
	c.pass()
	assert.Equal(t, 1, writes, "a second pass has nothing to write")
}

func TestGateOfAPodThatIsNoRequesterIsRemoved(t *testing.T) {
	pod, launcher := gatedPod("r"), launcherPod("l", "", time.Hour)
	pod.Annotations, launcher.Spec.SchedulingGates = nil, pod.Spec.SchedulingGates
	c := newCluster(t, interceptor.Funcs{}, nil, pod, launcher)
	c.pass()
	for _, name := range []string{"r", "l"} {
		pod := c.pod(name)
		assert.Empty(t, pod.Spec.SchedulingGates)
		told, _ := podmeta.ReadPlacement(pod)
		assert.Contains(t, told.Why, "one of them says which inference server is wanted")
	}
}

func TestSlowClockKeepsNoRequesterGated(t *testing.T) {
	pod := gatedPod("r") // its InferenceServerConfig does not exist
	pod.CreationTimestamp = metav1.NewTime(now.Add(time.Hour))
	c := newCluster(t, interceptor.Funcs{}, nil, pod)
	assert.Positive(t, c.pass().RequeueAfter)
	assert.NotEmpty(t, c.pod("r").Spec.SchedulingGates)
	c.opts.Now = func() time.Time { return now.Add(maxUnheardWait) }
	c.pass()
	assert.Empty(t, c.pod("r").Spec.SchedulingGates)
}

func TestOtherGatesAreLeftToTheirOwners(t *testing.T) {
	pod := gatedPod("r")
	pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: "example.com/quota"})
	c := newCluster(t, interceptor.Funcs{}, nil, pod, serverConfig())
	c.pass()
	assert.Len(t, c.pod("r").Spec.SchedulingGates, 2)
}

func TestFailedWriteIsReportedAndDelaysNoOther(t *testing.T) {
	refuse := true
	c := newCluster(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if o.GetName() == "refused" && refuse {
			return apierrors.NewForbidden(corev1.Resource("pods"), "refused", errors.New("the policy says no"))
		}
		return c.Patch(ctx, o, p, opts...)
	}}, nil, gatedPod("refused"), gatedPod("other"), serverConfig())
	assert.Equal(t, failedWritePause, c.pass().RequeueAfter)
	assert.Contains(t, <-c.events.Events, "the policy says no")
	assert.NotEmpty(t, c.pod("refused").Spec.SchedulingGates)
	assert.Empty(t, c.pod("other").Spec.SchedulingGates)
	refuse = false
	assert.Equal(t, failedWritePause, c.pass().RequeueAfter, "it is not tried again at once")
	assert.NotEmpty(t, c.pod("refused").Spec.SchedulingGates)
	c.opts.Now = func() time.Time { return now.Add(failedWritePause) }
	assert.Zero(t, c.pass())
	assert.Empty(t, c.pod("refused").Spec.SchedulingGates)
}

func TestWriteConflictIsRetriedSoon(t *testing.T) {
	stale := true
	c := newCluster(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if stale {
			return apierrors.NewConflict(corev1.Resource("pods"), o.GetName(), errors.New("it was changed"))
		}
		return c.Patch(ctx, o, p, opts...)
	}}, nil, gatedPod("r"), serverConfig())
	assert.Equal(t, conflictPause, c.pass().RequeueAfter)
	assert.Empty(t, c.events.Events)
	stale = false
	c.pass()
	assert.Empty(t, c.pod("r").Spec.SchedulingGates)
}

func TestPromiseLastsWhileThePodMayUseTheSleeper(t *testing.T) {
	promised := func(name, namespace, node string, since time.Time) *corev1.Pod {
		pod := gatedPod(name)
		pod.Namespace, pod.Spec.SchedulingGates, pod.Spec.NodeName = namespace, nil, node
		pod.Annotations[podmeta.AnnotationPlacement] = podmeta.Placement{Launcher: "l1", Instance: "i", Since: since}.Encode()
		return pod
	}
	for what, c := range map[string]struct {
		pod    *corev1.Pod
		counts bool
	}{
		"the Pod is not scheduled yet":     {promised("a", "ns", "", now), true},
		"the Pod is on the sleeper's node": {promised("a", "ns", "n1", now), true},
		"the Pod is on another node":       {promised("a", "ns", "n2", now), false},
		"the Pod is of another namespace":  {promised("a", "other", "", now), false},
		"the promise is too old":           {promised("a", "ns", "", now.Add(-promiseTimeout)), false},
		"the promise is of the future":     {promised("a", "ns", "", now.Add(365*24*time.Hour)), false},
	} {
		cluster := newCluster(t, interceptor.Funcs{}, views{"l1": {Connected: true, Instances: map[string]launcherapi.Instance{}}},
			c.pod, gatedPod("b"), serverConfig(), node("n1"), launcherPod("l1", "n1", time.Hour))
		w, _, err := cluster.observe(t.Context())
		require.NoError(t, err)
		assert.Equal(t, c.counts, w.Promised[Sleeper{"l1", "i"}], what)
	}
}

func TestLauncherWithStoreIsUnheardUntilItsModelsAreKnown(t *testing.T) {
	kept := launcherPod("l1", "n1", time.Hour)
	kept.Labels[podmeta.LabelModelNodeGroup] = "all"
	began := nodeview.View{Connected: true, Lost: now, ModelsLost: now, WhyNoModels: "it has not answered yet", Instances: map[string]launcherapi.Instance{}}
	says := views{"l1": began}
	c := newCluster(t, interceptor.Funcs{}, says, gatedPod("r"), serverConfig(), node("n1"), kept)
	assert.Positive(t, c.pass().RequeueAfter)
	assert.NotEmpty(t, c.pod("r").Spec.SchedulingGates)
	says["l1"] = has("hf://org/llama")
	c.pass()
	told, _ := podmeta.ReadPlacement(c.pod("r"))
	assert.Equal(t, "its model is on the disk of node n1", told.Why)

	broken := began
	broken.ModelsLost = now.Add(-maxUnheardWait)
	c = newCluster(t, interceptor.Funcs{}, views{"l1": broken}, gatedPod("r"), serverConfig(), node("n1"), kept)
	c.pass()
	assert.Empty(t, c.pod("r").Spec.SchedulingGates, "it does not wait for this launcher any longer")
}

func TestOldestLauncherOfANodeCounts(t *testing.T) {
	c := newCluster(t, interceptor.Funcs{}, views{"a-new": has("hf://org/llama"), "old": has("hf://org/other")},
		gatedPod("r"), serverConfig(), node("n1"), launcherPod("a-new", "n1", time.Minute), launcherPod("old", "n1", time.Hour))
	c.pass()
	told, _ := podmeta.ReadPlacement(c.pod("r"))
	assert.Equal(t, "no node has its model on disk, or asleep on free GPUs", told.Why)
}

func TestStrangersAndOrphansCountForNothing(t *testing.T) {
	for name, finalizers := range map[string][]string{"stranger": nil, "orphan": {podmeta.FinalizerProvider}} {
		t.Run(name, func(t *testing.T) { countsForNothing(t, finalizers) })
	}
}

// countsForNothing looks at a Pod with the labels of a launcher that no LauncherConfig owns.
func countsForNothing(t *testing.T, finalizers []string) {
	t.Helper()
	stranger := launcherPod("stranger", "n1", 2*time.Hour)
	stranger.OwnerReferences[0].UID, stranger.Finalizers = "made up", finalizers
	stranger.Annotations = map[string]string{podmeta.AnnotationBindingPrefix + "x": `{"requesterUID":"r","namespace":"ns","name":"r","gpus":["GPU-0"],"servingPort":8000,"specHash":"h","attempt":1,"since":"2026-11-22T12:00:00Z"}`}
	lies := has("hf://org/other")
	lies.Instances["a"] = launcherapi.Instance{InstanceID: "a", State: "awake", GPUUUIDs: []string{"GPU-0"}}
	c := newCluster(t, interceptor.Funcs{}, views{"stranger": lies, "l1": has("hf://org/llama")},
		gatedPod("r"), serverConfig(), node("n1"), stranger, launcherPod("l1", "n1", time.Hour))
	w, _, err := c.observe(t.Context())
	require.NoError(t, err)
	require.Len(t, w.Launchers, 1)
	assert.Equal(t, "l1", w.Launchers[0].Name)
	assert.Empty(t, w.Taken["n1"], "neither its records nor its instances take a GPU")
	c.pass()
	told, _ := podmeta.ReadPlacement(c.pod("r"))
	assert.Equal(t, "its model is on the disk of node n1", told.Why)
}

func TestLauncherOfADeselectedNodeGetsNoRequesters(t *testing.T) {
	for name, c := range map[string]struct {
		labels  map[string]string
		prefers bool
	}{
		"it is selected":              {map[string]string{"pool": "yes"}, true},
		"it is not selected any more": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			held := has("hf://org/llama")
			held.Instances["a"] = launcherapi.Instance{InstanceID: "a", State: "awake", GPUUUIDs: []string{"GPU-0"}}
			at := node("n1")
			at.Labels = c.labels
			site := newCluster(t, interceptor.Funcs{}, views{"l1": held}, gatedPod("r"), serverConfig(), at, launcherPod("l1", "n1", time.Hour))
			config := launcherConfig()
			require.NoError(t, site.api.Get(t.Context(), client.ObjectKeyFromObject(config), config))
			config.Spec.Population.NodeSelector = map[string]string{"pool": "yes"}
			require.NoError(t, site.api.Update(t.Context(), config))
			w, _, err := site.observe(t.Context())
			require.NoError(t, err)
			assert.Equal(t, map[string]bool{"GPU-0": true}, w.Taken["n1"], "what it has awake holds its GPU")
			site.pass()
			told, _ := podmeta.ReadPlacement(site.pod("r"))
			assert.Equal(t, c.prefers, told.Why == "its model is on the disk of node n1", told.Why)
		})
	}
}

func TestPlacementAnnotationIsBounded(t *testing.T) {
	pod := gatedPod("r")
	pod.Annotations[podmeta.AnnotationAdminPort] = strings.Repeat("x", 60<<10)
	c := newCluster(t, interceptor.Funcs{}, nil, pod, serverConfig())
	c.pass()
	assert.Less(t, len(c.pod("r").Annotations[podmeta.AnnotationPlacement]), 8<<10)
}

func TestLostWriteAnswerKeepsTheSleeperPromised(t *testing.T) {
	for what, c := range map[string]struct {
		err  error
		free bool // the sleeper is free for the next requester
	}{
		"the connection breaks": {errors.New("connection reset"), false},
		"the server is broken":  {apierrors.NewInternalError(errors.New("no leader")), false},
		"the server refuses":    {apierrors.NewForbidden(corev1.Resource("pods"), "first", errors.New("the policy says no")), true},
	} {
		instances := map[string]launcherapi.Instance{}
		site := newCluster(t, interceptor.Funcs{Patch: func(ctx context.Context, api client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if o.GetName() == "first" {
				return c.err
			}
			return api.Patch(ctx, o, p, opts...)
		}}, views{"l1": {Connected: true, GPUs: []string{"GPU-1"}, Instances: instances}},
			gatedPod("first"), serverConfig(), node("n1"), launcherPod("l1", "n1", time.Hour))
		asks, err := site.requester(t.Context(), gatedPod("first"))
		require.NoError(t, err)
		id := nameOf(asks.Form, []string{"GPU-1"})
		instances[id] = launcherapi.Instance{InstanceID: id, State: string(launcher.Sleeping), GPUUUIDs: []string{"GPU-1"}}
		site.pass()
		second := gatedPod("second")
		second.CreationTimestamp = metav1.NewTime(now.Add(time.Second))
		require.NoError(t, site.api.Create(t.Context(), second))
		site.pass()
		told, ok := podmeta.ReadPlacement(site.pod("second"))
		require.True(t, ok, what)
		assert.Equal(t, c.free, told.Instance != "", "%s: %s", what, told.Why)
	}
}

func TestForeignRecordsTakeNoGPUsAndEndNoPromises(t *testing.T) {
	const record = `{"requesterUID":"p","namespace":"NAMESPACE","name":"p","gpus":["GPU-0"],"servingPort":8000,"specHash":"h","attempt":1,"since":"2026-11-22T12:00:00Z"}`
	for name, c := range map[string]struct {
		launcher, record string // their namespaces
		taken, promised  bool
	}{
		"it is its own":                    {"ns", "ns", true, false},
		"it names another namespace":       {"ns", "elsewhere", false, true},
		"its launcher is of another, too":  {"elsewhere", "ns", false, true},
		"it has the UID of somebody's Pod": {"elsewhere", "elsewhere", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			other := launcherConfig()
			other.Namespace, other.UID = "elsewhere", "other"
			bearer := launcherPod("bearer", "n1", time.Hour)
			bearer.Namespace = c.launcher
			if c.launcher != "ns" {
				bearer.OwnerReferences[0].UID = "other"
			}
			bearer.Annotations = map[string]string{podmeta.AnnotationBindingPrefix + "x": strings.Replace(record, "NAMESPACE", c.record, 1)}
			waits := gatedPod("p")
			waits.Spec.SchedulingGates = nil
			waits.Annotations[podmeta.AnnotationPlacement] = podmeta.Placement{Launcher: "l1", Instance: "i", Since: now}.Encode()
			site := newCluster(t, interceptor.Funcs{}, views{}, gatedPod("r"), serverConfig(), node("n1"), other, bearer, waits, launcherPod("l1", "n1", time.Hour))
			w, _, err := site.observe(t.Context())
			require.NoError(t, err)
			assert.Equal(t, c.taken, w.Taken["n1"]["GPU-0"])
			assert.Equal(t, c.promised, w.Promised[Sleeper{"l1", "i"}])
		})
	}
}

// A launcher that has not started comes before one that has not answered for long, in binding
// and here.
func TestUnstartedLauncherIsStartingThoughItIsNotHeard(t *testing.T) {
	starting, silent := launcherPod("starting", "n1", time.Hour), launcherPod("silent", "n1", time.Minute)
	starting.Status = corev1.PodStatus{Phase: corev1.PodPending}
	silent.Status.PodIP = "10.1.0.2"
	silent.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: podmeta.ServingContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	lost := has("hf://org/llama")
	lost.Connected, lost.Lost = false, now.Add(-dualpods.LauncherPatience)
	c := newCluster(t, interceptor.Funcs{}, views{"silent": lost, "starting": nodeview.View{Lost: lost.Lost}},
		gatedPod("r"), serverConfig(), node("n1"), starting, silent)
	w, _, err := c.observe(t.Context())
	require.NoError(t, err)
	stages := map[string]dualpods.Stage{}
	for _, l := range w.Launchers {
		stages[l.Name] = l.Stage
	}
	assert.Equal(t, map[string]dualpods.Stage{"starting": dualpods.Starting, "silent": dualpods.Silent}, stages)
	c.pass()
	told, _ := podmeta.ReadPlacement(c.pod("r"))
	assert.Equal(t, "no node has its model on disk, or asleep on free GPUs", told.Why, "it will be bound to the one that is starting")
}
