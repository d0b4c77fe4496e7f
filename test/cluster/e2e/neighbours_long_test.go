//go:build cluster && clusterlong

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/deploy/images"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
)

// newPoolOfTwo makes a namespace with two launchers of different images on one GPU,
// and names them.
func newPoolOfTwo(t *testing.T) (s *site, one, two string) {
	t.Helper()
	another := images.Image{Files: map[string]string{"/launcher": root("bin/launcher"), "/enginesim": root("bin/enginesim")}}
	require.NoError(t, laneOf(t).cluster.LoadImage(t.Context(), "hotseat.local/another-launcher:dev", another))
	onOneNode := func(c *v1alpha1.LauncherConfig) {
		c.Spec.Population.NodeSelector = map[string]string{corev1.LabelHostname: cluster.NodeName(1)}
	}
	s = newPool(t, onOneNode)
	config := s.config()
	other := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "another"}, Spec: config.Spec}
	changeTemplate(t, other, func(c map[string]any) { c["image"] = "hotseat.local/another-launcher:dev" })
	require.NoError(t, laneOf(t).api.Create(t.Context(), other))
	s.onOneGPU()
	return s, s.launcherOf("simulated"), s.launcherOf("another")
}

// states are those of a launcher's instances, by model.
func (s *site) states(launcher string) map[string]string {
	s.t.Helper()
	all := map[string]string{}
	for model, i := range s.instances(s.launcher(launcher)) {
		all[model] = i.State
	}
	return all
}

// large has a model take 40 of a GPU's 80 GiB while awake, and keep 30 asleep.
var large = []string{"--gpu-memory-utilization=0.5", "--sim-residue=30GiB"}

// sleepers has two large models sleep on the one GPU.
func (s *site) sleepers() {
	s.t.Helper()
	for _, app := range []string{"oldest", "newer"} {
		s.start(server{app: app, node: 1, args: large})
		s.served(app, 1)
		s.delete(app)
		s.gone(app)
	}
}

func TestSleepersOfALauncherMakeRoomForAModelOfAnotherImageOnTheirGPU(t *testing.T) {
	s, one, two := newPoolOfTwo(t)
	s.sleepers()
	require.Equal(t, map[string]string{"org/oldest": "sleeping", "org/newer": "sleeping"}, s.states(one))
	newer := s.instances(s.launcher(one))["org/newer"]
	s.start(server{app: "stranger", node: 1, of: "another", args: []string{"--gpu-memory-utilization=0.3"}})
	pod := s.served("stranger", 1)[0]
	model, err := s.ask(pod.Status.PodIP+":8000", "org/stranger")
	require.NoError(t, err)
	assert.Equal(t, "org/stranger", model)
	assert.Equal(t, map[string]string{"org/newer": "sleeping"}, s.states(one), "the one that slept longest is gone, and no other")
	assert.Equal(t, map[string]string{"org/stranger": "awake"}, s.states(two))

	// Whoever is gone by force leaves a model that is awake: it sleeps before the
	// other launcher's wakes, although there is memory for both.
	s.delete("stranger", "--grace-period=0", "--force")
	s.start(server{app: "newer", node: 1, args: large})
	s.served("newer", 1)
	assert.Equal(t, map[string]string{"org/newer": "awake"}, s.states(one))
	assert.Equal(t, map[string]string{"org/stranger": "sleeping"}, s.states(two))
	woken := s.instances(s.launcher(one))["org/newer"]
	assert.Equal(t, newer.PID, woken.PID, "it was woken")
	slept := s.instances(s.launcher(two))["org/stranger"]
	assert.True(t, slept.StateSince.Before(woken.StateSince), "%s asleep at %s, %s awake at %s", slept.Model, slept.StateSince, woken.Model, woken.StateSince)
}
