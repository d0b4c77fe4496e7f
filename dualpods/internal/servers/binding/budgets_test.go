package binding

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/launchers/launcherpool"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// sleepers are instances that sleep on GPU-0, the first one used and asleep for the
// longest time.
func sleepers(names ...string) map[string]launcherapi.Instance {
	all := map[string]launcherapi.Instance{}
	for n, name := range names {
		at := now.Add(time.Duration(n) * time.Minute)
		all[name] = launcherapi.Instance{
			InstanceID: name, State: "sleeping", GPUUUIDs: []string{"GPU-0"}, StateSince: at, LastUsedAt: &at,
			GPUBytes: map[string]uint64{"GPU-0": 1 << 30}, HostBytes: 10 << 30, Annotations: map[string]string{podmeta.AnnotationMadeFor: "ns/req"},
		}
	}
	return all
}

func TestSurplusSleepersAreTheLeastRecentlyUsedOnes(t *testing.T) {
	none := sleeperBudgets{noLimit, noLimit, noLimit}
	for name, e := range map[string]struct {
		budgets func(*sleeperBudgets)
		change  func(map[string]launcherapi.Instance)
		want    []string
	}{
		"no limit":           {func(*sleeperBudgets) {}, nil, nil},
		"as many as may be":  {func(b *sleeperBudgets) { b.perGPU = 3 }, nil, nil},
		"one on a GPU":       {func(b *sleeperBudgets) { b.perGPU = 1 }, nil, []string{"a", "b"}},
		"bytes on a GPU":     {func(b *sleeperBudgets) { b.bytesPerGPU = 2<<30 + 1 }, nil, []string{"a"}},
		"main memory":        {func(b *sleeperBudgets) { b.hostBytes = 20 << 30 }, nil, []string{"a"}},
		"the newest stays":   {func(b *sleeperBudgets) { b.hostBytes = 1 }, nil, []string{"a", "b"}},
		"two limits at once": {func(b *sleeperBudgets) { b.hostBytes, b.perGPU = 20<<30, 1 }, nil, []string{"a", "b"}},
		"pinned, made by hand, claimed": {func(b *sleeperBudgets) { b.perGPU = 1 }, func(all map[string]launcherapi.Instance) {
			for name, change := range map[string]func(*launcherapi.Instance){
				"pinned":  func(i *launcherapi.Instance) { i.Annotations[launcherapi.AnnotationPinned] = "true" },
				"by hand": func(i *launcherapi.Instance) { i.Annotations = nil },
				"claimed": func(i *launcherapi.Instance) { i.SwapID = "s" },
				"awake":   func(i *launcherapi.Instance) { i.State = "awake" },
			} {
				i := sleepers(name)[name]
				change(&i)
				all[name] = i
			}
		}, []string{"a", "b"}},
		"on another GPU": {func(b *sleeperBudgets) { b.perGPU = 1 }, func(all map[string]launcherapi.Instance) {
			other := all["b"]
			other.GPUUUIDs = []string{"GPU-1"}
			all["b"] = other
		}, []string{"a"}},
		"bound": {func(b *sleeperBudgets) { b.perGPU = 1 }, func(all map[string]launcherapi.Instance) {
			all["kept"] = sleepers("kept")["kept"]
		}, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			all, budgets := sleepers("a", "b", "c"), none
			e.budgets(&budgets)
			if e.change != nil {
				e.change(all)
			}
			assert.Equal(t, e.want, surplus(budgets, all, func(id string) bool { return id == "kept" }))
		})
	}
}

// startedBy is a launcher that was started with the budgets of a LauncherConfig, and a
// copy of that.
func startedBy(t *testing.T, budgets v1alpha1.Budgets) (*launcherPod, *v1alpha1.LauncherConfig) {
	t.Helper()
	config := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "each"}}
	config.Spec.Budgets = budgets
	config.Spec.PodTemplate.Raw = []byte(`{"spec": {"containers": [{"name": "inference-server", "image": "vllm"}]}}`)
	made, problems := launcherpool.Template(config, launcherpool.Image{Name: "launcher", Port: 8001}, "secret", nil, "")
	require.Empty(t, problems)
	l := &launcherPod{of: config.DeepCopy()}
	l.read(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "theirs", UID: "theirs"}, Spec: made.Spec})
	return l, l.of
}

func TestControllerEnforcesOnlyBudgetsThatWereLowered(t *testing.T) {
	four, eight, low := int32(4), resource.MustParse("8Gi"), resource.MustParse("2Gi")
	l, config := startedBy(t, v1alpha1.Budgets{MaxSleepersPerGPU: &four, MaxHostSleeperBytes: &eight})
	_, ok := l.loweredBudgets()
	assert.False(t, ok, "as it was started")

	config.Spec.Budgets = v1alpha1.Budgets{MaxSleepersPerGPU: new(int32(5))}
	_, ok = l.loweredBudgets()
	assert.False(t, ok, "raised, and removed")

	config.Spec.Budgets = v1alpha1.Budgets{MaxSleepersPerGPU: new(int32(1)), MaxHostSleeperBytes: &eight, MaxSleeperBytesPerGPU: &low}
	lowered, ok := l.loweredBudgets()
	assert.True(t, ok)
	assert.Equal(t, sleeperBudgets{perGPU: 1, bytesPerGPU: 2 << 30, hostBytes: noLimit}, lowered, "lowered, kept, and new")

	l.of = nil
	_, ok = l.loweredBudgets()
	assert.False(t, ok, "its LauncherConfig is gone")
}

func TestSleepersOverALoweredBudgetAreDeletedWhileARequesterIsBound(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	four := int32(4)
	l, config := startedBy(t, v1alpha1.Budgets{MaxSleepersPerGPU: &four})
	l.bindings = []podmeta.Binding{{Instance: "served"}}
	l.pod.Finalizers = []string{podmeta.FinalizerProvider}
	all := sleepers("served", "a", "b")
	v := &nodeViews{deleted: make(chan string, 4), views: map[string]nodeview.View{"theirs": {Connected: true, Instances: all}}}
	c := New(ctx, Options{Providers: v, Again: func(string) {}}, logr.Discard())
	defer c.Close()
	defer stop()
	n, w := c.work("node-0"), &world{now: now, pods: map[types.UID]*corev1.Pod{}, launchers: []*launcherPod{l}}
	for range 2 {
		_, ok := c.tidy(t.Context(), n, w)
		require.True(t, ok)
		n.calls.running.Wait()
	}
	assert.Empty(t, v.deleted, "the budgets are those that the launcher was started with")

	config.Spec.Budgets.MaxSleepersPerGPU = new(int32(1))
	for range 2 {
		_, ok := c.tidy(t.Context(), n, w)
		require.True(t, ok)
	}
	n.calls.running.Wait()
	require.Len(t, v.deleted, 1, "each is deleted once, and the newest one stays")
	assert.Equal(t, "theirs/a", <-v.deleted)
}
