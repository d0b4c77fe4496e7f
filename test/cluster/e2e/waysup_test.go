//go:build cluster

package e2e

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestTwoServersOnOneNodeBothAnswerOnPort8000(t *testing.T) {
	s := newSite(t)
	s.deploy(server{app: "one", node: 1}, 1)
	s.deploy(server{app: "two", node: 1}, 1)
	s.served("one", 1)
	s.served("two", 1)
	s.answers("one")
	s.answers("two")
	there := s.instances(s.launcher("launcher-node-1"))
	assert.NotEqual(t, there["org/one"].GPUUUIDs, there["org/two"].GPUUUIDs)
	assert.NotEqual(t, there["org/one"].Port, there["org/two"].Port)
	assert.Len(t, s.records("launcher-node-1"), 2)
}

func TestAServerOnSeveralGPUsHasThoseOfItsRequester(t *testing.T) {
	s := newSite(t)
	s.deploy(server{app: "large", node: 1, gpus: 2, args: []string{"--tensor-parallel-size=2"}}, 1)
	pod := s.served("large", 1)[0]
	s.answers("large")
	i := s.instances(s.launcher("launcher-node-1"))["org/large"]
	assert.ElementsMatch(t, s.cluster.UUIDs(1), i.GPUUUIDs)
	records := s.records("launcher-node-1")
	require.Len(t, records, 1)
	assert.Equal(t, pod.UID, records[0].RequesterUID)
	assert.ElementsMatch(t, s.cluster.UUIDs(1), records[0].GPUs)
}

func TestAConfigurationWakesWhatAServerPatchHadStarted(t *testing.T) {
	s := newSite(t)
	s.onOneGPU()
	patched := server{app: "same", node: 1}
	s.deploy(patched, 1)
	s.served("same", 1)
	launcher := s.launcher("launcher-node-1")
	first := s.instances(launcher)["org/same"]
	s.scale("same", 0)
	s.gone("same")

	require.NoError(t, s.api.Create(t.Context(), &v1alpha1.InferenceServerConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "same"},
		Spec: v1alpha1.InferenceServerConfigSpec{
			ModelServerConfig: v1alpha1.ModelServerConfig{Port: 8000, Args: patched.engineArgs()}, LauncherConfigName: "simulated",
		},
	}))
	pod := s.start(server{app: "same", node: 1, config: "same"})
	s.served("same", 1)
	s.answers("same")
	second := s.instances(launcher)["org/same"]
	assert.Equal(t, first.InstanceID, second.InstanceID)
	assert.Equal(t, first.PID, second.PID, "it was woken, not started")
	assert.Equal(t, pod.UID, s.records("launcher-node-1")[0].RequesterUID)
}

func TestTheModelThatSleptLongestMakesRoomForAThird(t *testing.T) {
	s := newBareSite(t)
	s.addLauncher(1, "--budgets-max-sleepers-per-gpu=1")
	s.onOneGPU()
	launcher := s.launcher("launcher-node-1")
	apps := []string{"first", "second", "third"}
	for n, app := range apps {
		s.deploy(server{app: app, node: 1}, 1)
		s.served(app, 1)
		if n < len(apps)-1 {
			s.scale(app, 0)
			s.gone(app)
		}
	}
	s.answers("third")
	s.eventually("one model sleeps and one is awake", func() bool { return len(s.instances(launcher)) == 2 })
	there := s.instances(launcher)
	assert.Equal(t, "sleeping", there["org/second"].State)
	assert.Equal(t, "awake", there["org/third"].State)
}

// TestSleepersMakeRoomForAServerOnSeveralGPUs: two small models sleep on each of
// two GPUs of 80 GiB and keeps 8 GiB of it; a large one needs 68 GiB of both.
func TestSleepersMakeRoomForAServerOnSeveralGPUs(t *testing.T) {
	s := newBareSite(t)
	s.addLauncher(1, "--budgets-max-sleepers-per-gpu=2")
	launcher := s.launcher("launcher-node-1")
	small := []string{"--sim-residue=8GiB"}
	for _, pair := range [][]string{{"old-1", "old-2"}, {"new-1", "new-2"}} { // a pair has both GPUs
		for _, app := range pair {
			s.deploy(server{app: app, node: 1, args: small}, 1)
		}
		for _, app := range pair {
			s.served(app, 1)
		}
		for _, app := range pair {
			s.scale(app, 0)
			s.gone(app)
		}
	}
	before := s.instances(launcher)
	require.Len(t, before, 4)

	s.deploy(server{app: "large", node: 1, gpus: 2, args: []string{"--tensor-parallel-size=2", "--gpu-memory-utilization=0.85", "--sim-residue=8GiB"}}, 1)
	s.served("large", 1)
	s.answers("large")
	there := s.instances(launcher)
	assert.ElementsMatch(t, []string{"org/large", "org/new-1", "org/new-2"}, slices.Collect(maps.Keys(there)), "one of each GPU went, the one that slept longest")
	for _, model := range []string{"org/new-1", "org/new-2"} {
		assert.Equal(t, "sleeping", there[model].State)
		assert.Equal(t, before[model].PID, there[model].PID)
	}
}

func TestReplicasComeAndGoOnTwoNodesAndAreWokenWhereTheySleep(t *testing.T) {
	s := newSite(t)
	s.addLauncher(2)
	s.deploy(server{app: "many"}, 4)
	s.served("many", 4) // all GPUs of both nodes
	launchers := []string{"launcher-node-1", "launcher-node-2"}
	pids := s.pids("many", launchers, "awake")
	require.Len(t, pids, 4)
	s.scale("many", 0)
	s.gone("many")
	assert.ElementsMatch(t, pids, s.pids("many", launchers, "sleeping"))
	for _, n := range []int{1, 3, 1, 0, 2} {
		s.scale("many", n)
		if n == 0 {
			s.gone("many")
			continue
		}
		s.served("many", n)
		s.answers("many")
	}
	s.eventually("two are awake", func() bool { return len(s.pids("many", launchers, "awake")) == 2 })
	all := slices.Concat(s.pids("many", launchers, "awake"), s.pids("many", launchers, "sleeping"))
	assert.ElementsMatch(t, pids, all, "none was started anew")
}

func TestALauncherServesNobodyOfAnotherNamespace(t *testing.T) {
	theirs := newSite(t)
	theirs.deploy(server{app: "theirs", node: 1}, 1)
	theirs.served("theirs", 1) // the controller knows their launcher
	ours := newBareSite(t)
	pod := ours.start(server{app: "ours", node: 1})
	ours.eventually("the requester runs", func() bool { return ours.pod("ours").Status.Phase == corev1.PodRunning })
	byPolicy := ours.hasPolicyForRequesters()
	ours.stays("nothing is made for it", func() bool {
		return len(theirs.instances(theirs.launcher("launcher-node-1"))) == 1 && podmeta.Held(ours.pod("ours")) == byPolicy
	})
	records := theirs.records("launcher-node-1")
	require.Len(t, records, 1)
	assert.NotEqual(t, pod.UID, records[0].RequesterUID)
}
