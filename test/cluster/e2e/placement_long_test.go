//go:build cluster && clusterlong

package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	launcherclient "hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/hubserver"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// placed waits until the gate of a requester is off, and gives why it was placed so.
func (s *site) placed(name string) (pod *corev1.Pod, why podmeta.Placement) {
	s.t.Helper()
	s.eventually("the gate of "+name+" is off", func() bool {
		pod = s.pod(name)
		return len(pod.Spec.SchedulingGates) == 0
	})
	why, ok := podmeta.ReadPlacement(pod)
	require.True(s.t, ok, "%v", pod.Annotations)
	return pod, why
}

// TestAGatedRequesterGoesToTheNodeWhereItsModelSleeps leaves one GPU of each node to
// the test; the scheduler alone would take the first node, where nothing else asks for CPU.
func TestAGatedRequesterGoesToTheNodeWhereItsModelSleeps(t *testing.T) {
	s := newSite(t)
	s.addLauncher(2)
	s.onOneGPU()
	s.onOneGPUOf(2, "1200m")
	s.deploy(server{app: "warm", node: 2}, 1)
	s.served("warm", 1)
	s.scale("warm", 0)
	s.gone("warm")
	asleep := s.instance("launcher-node-2", "warm", "sleeping")

	began := time.Now()
	s.start(server{app: "warm", placed: true})
	pod := s.served("warm", 1)[0]
	t.Logf("a requester that was steered to where its model sleeps is ready after %s", time.Since(began).Round(time.Millisecond))
	assert.Equal(t, cluster.NodeName(2), pod.Spec.NodeName)
	assert.Equal(t, asleep.PID, s.instance("launcher-node-2", "warm", "awake").PID, "it was woken, not started")
	_, why := s.placed("warm")
	assert.Equal(t, asleep.InstanceID, why.Instance)
	assert.EqualValues(t, s.pod("launcher-node-2").UID, why.Launcher)
	s.eventually("an Event tells of it", func() bool {
		events := s.kubectl("get", "events", "--field-selector", "reason=Placed,involvedObject.name=warm", "-o", "jsonpath={.items[*].message}")
		return events == "its model sleeps on node "+cluster.NodeName(2)+", as instance "+asleep.InstanceID
	})
	model, err := s.ask(pod.Status.PodIP+":8000", "org/warm")
	require.NoError(t, err)
	assert.Equal(t, "org/warm", model)

	// Where nothing is near, or what is asked for cannot be read, the scheduler decides.
	s.start(server{app: "cold", placed: true})
	s.served("cold", 1)
	cold, why := s.placed("cold")
	assert.Equal(t, cluster.NodeName(1), cold.Spec.NodeName, "the other GPU is taken")
	assert.Nil(t, cold.Spec.Affinity)
	assert.Equal(t, "no node has its model on disk, or asleep on free GPUs", why.Why)
	s.start(server{app: "wrong", placed: true, patch: "spec: [not a Pod]"})
	_, why = s.placed("wrong")
	assert.Contains(t, why.Why, "server-patch")
}

// TestAGatedRequesterWaitsForAControllerThatHearsLaunchersFirst: the controller is
// stopped, and killed once the requester is there. The one that follows takes the gate
// off only when it knows what sleeps where.
func TestAGatedRequesterWaitsForAControllerThatHearsLaunchersFirst(t *testing.T) {
	s := newSite(t)
	s.addLauncher(2)
	s.onOneGPUOf(2, "1200m")
	s.deploy(server{app: "kept", node: 2}, 1)
	s.served("kept", 1)
	s.scale("kept", 0)
	s.gone("kept")
	asleep := s.instance("launcher-node-2", "kept", "sleeping")

	leader := s.controller()
	s.signalController(t.Context(), leader, "STOP")
	s.start(server{app: "kept", placed: true})
	s.eventually("the requester is said to be gated", func() bool {
		for _, c := range s.pod("kept").Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
				return true
			}
		}
		return false
	})
	s.killController(leader)
	pod := s.served("kept", 1)[0]
	assert.Equal(t, cluster.NodeName(2), pod.Spec.NodeName)
	assert.Equal(t, asleep.PID, s.instance("launcher-node-2", "kept", "awake").PID, "it was woken, not started")
}

// TestAGatedRequesterThatRequiresItsModelWaitsForANodeThatHasIt keeps a model on the
// second node, whose GPUs others have at first.
func TestAGatedRequesterThatRequiresItsModelWaitsForANodeThatHasIt(t *testing.T) {
	s := newModelSite(t, func(group *v1alpha1.ModelCacheNodeGroup) {
		group.Spec.NodeSelector = map[string]string{corev1.LabelHostname: cluster.NodeName(2)}
	})
	s.hub.Put("org/required", hubserver.Model{Commit: hubCommit, Files: map[string][]byte{"config.json": []byte(`{}`), "model.safetensors": []byte("w")}})
	s.allReady()
	s.deploy(server{app: "other", node: 2, gpus: 2, args: []string{"--tensor-parallel-size=2"}}, 1)
	s.served("other", 1)
	c := s.keepBy("required", "org/required", v1alpha1.SchedulingRequire)
	s.told(c.Name, "the node has it", func(status *v1alpha1.ClusterModelCacheStatus) bool {
		return status.Progress == "1/1" && status.Ready == 1
	})
	s.eventually("the node that has it is labelled", func() bool {
		return s.kubectl("get", "nodes", "-l", podmeta.ModelLabel(c.Name)+"="+podmeta.ModelReady, "-o", "name") == "node/"+cluster.NodeName(2)+"\n"
	})

	s.start(server{app: "required", placed: true})
	s.eventually("the scheduler says that no node is left", func() bool {
		for _, condition := range s.pod("required").Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
				return true
			}
		}
		return false
	})
	_, why := s.placed("required")
	assert.Contains(t, why.Why, "ClusterModelCache required says scheduling: Require")
	s.scale("other", 0)
	s.served("required", 1)
	pod := s.pod("required")
	assert.Equal(t, cluster.NodeName(2), pod.Spec.NodeName)

	require.NoError(t, s.api.Delete(t.Context(), pod)) // what reads the model keeps it
	s.gone("required")
	launcher := s.poolPods()[cluster.NodeName(2)].Name
	_, err := s.launcher(launcher).Delete(t.Context(), s.instance(launcher, "required", "sleeping").InstanceID)
	require.NoError(t, err)
	s.told(c.Name, "it is not in use", func(status *v1alpha1.ClusterModelCacheStatus) bool { return status.InUse == 0 })
	require.NoError(t, s.api.Delete(t.Context(), c))
	s.eventually("no node is labelled any more", func() bool {
		return s.kubectl("get", "nodes", "-l", podmeta.ModelLabel(c.Name), "-o", "name") == ""
	})
}

func TestAGatedRequesterGoesToTheNodeThatHasItsModelOnDisk(t *testing.T) {
	s := newModelSite(t, func(group *v1alpha1.ModelCacheNodeGroup) {
		group.Spec.NodeSelector = map[string]string{corev1.LabelHostname: cluster.NodeName(2)}
	})
	s.hub.Put("org/stored", hubserver.Model{Commit: hubCommit, Files: map[string][]byte{"config.json": []byte(`{}`), "model.safetensors": []byte("w")}})
	s.allReady()
	s.onOneGPUOf(2, "1200m") // the scheduler alone would take the first node
	c := s.keep("stored", "org/stored")
	s.told(c.Name, "the node has it", func(status *v1alpha1.ClusterModelCacheStatus) bool {
		return status.Progress == "1/1" && status.Ready == 1
	})

	s.evict(2)
	s.start(server{app: "stored", placed: true})
	s.served("stored", 1)
	pod, why := s.placed("stored")
	assert.Equal(t, cluster.NodeName(2), pod.Spec.NodeName)
	assert.Equal(t, "its model is on the disk of node "+cluster.NodeName(2), why.Why)
	assert.Empty(t, why.Instance)

	require.NoError(t, s.api.Delete(t.Context(), pod)) // what reads the model keeps it
	s.gone("stored")
	launcher := s.poolPods()[cluster.NodeName(2)].Name
	_, err := s.launcher(launcher).Delete(t.Context(), s.instance(launcher, "stored", "sleeping").InstanceID)
	require.NoError(t, err)
}

func TestAGatedRequesterGoesToTheNodeWhoseMainMemoryHoldsItsModel(t *testing.T) {
	s := newModelSite(t, nil)
	s.hub.Put("org/held", hubserver.Model{Commit: hubCommit, Files: map[string][]byte{"config.json": []byte(`{}`), "model.safetensors": []byte("w")}})
	s.allReady()
	s.onOneGPUOf(2, "1200m") // the scheduler alone would take the first node
	c := s.keep("held", "org/held")
	s.told(c.Name, "both nodes have it", everywhere)
	s.evict(1)

	s.start(server{app: "held", placed: true})
	s.served("held", 1)
	pod, why := s.placed("held")
	assert.Equal(t, cluster.NodeName(2), pod.Spec.NodeName)
	assert.Equal(t, "its model is in the main memory of node "+cluster.NodeName(2), why.Why)

	require.NoError(t, s.api.Delete(t.Context(), pod)) // what reads the model keeps it
	s.gone("held")
	launcher := s.poolPods()[cluster.NodeName(2)].Name
	_, err := s.launcher(launcher).Delete(t.Context(), s.instance(launcher, "held", "sleeping").InstanceID)
	require.NoError(t, err)
}

// evict has main memory give up the one model of a node, and waits until watchers of the
// node's launcher hear of that.
func (s *modelSite) evict(node int) {
	s.t.Helper()
	const giveUp = `find "$0" -type f -exec sync {} + -exec dd if={} iflag=nocache count=0 status=none ';'`
	cmd, err := s.cluster.InNode(s.t.Context(), node, "sh", "-c", giveUp, "/var/lib/hotseat/"+s.ns+"/blobs")
	require.NoError(s.t, err)
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "%s", out)
	launcher := s.launcher(s.poolPods()[cluster.NodeName(node)].Name)
	m, err := launcher.Model(s.t.Context(), s.modelsOf(node)[0].ID) // which looks
	require.NoError(s.t, err)
	require.Equal(s.t, launcherapi.PageCacheNone, m.PageCache, "%+v", m)
	for models, err := range launcherclient.FollowModels(s.t.Context(), launcher, func(m launcherapi.Model) launcherapi.Model { return m }) {
		require.NoError(s.t, err)
		if models[m.ID].PageCache == launcherapi.PageCacheNone {
			break
		}
	}
	time.Sleep(patience.Wait() / 90) // the controller's own stream may come a quarter of a second later
}
