//go:build cluster && clusterlong

package e2e

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// roll gives a Deployment another template and maxSurge, and waits until its
// rollout has come to its end.
func (s *site) roll(app string, to server, maxSurge int) {
	s.t.Helper()
	template := to.template(s.t)
	template.Labels["app"] = app
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{
		"strategy": map[string]any{"rollingUpdate": map[string]any{"maxSurge": maxSurge, "maxUnavailable": 1 - maxSurge}},
		"template": template,
	}})
	require.NoError(s.t, err)
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: app}}
	require.NoError(s.t, s.api.Patch(s.t.Context(), deployment, client.RawPatch(types.StrategicMergePatchType, patch)))
	s.kubectl("rollout", "status", "deployment/"+app, "--timeout="+patience.Wait().String())
}

// alone waits until one requester of the app is there, which the one record is
// of, and checks that it is the model that answers.
func (s *site) alone(app, model string) {
	s.t.Helper()
	s.eventually("one requester is left, and one record, which is its own", func() bool {
		pods, records := s.pods(app), s.records("launcher-node-1")
		return len(pods) == 1 && len(records) == 1 && records[0].RequesterUID == pods[0].UID
	})
	got, err := s.ask(s.served(app, 1)[0].Status.PodIP+":8000", model)
	require.NoError(s.t, err)
	assert.Equal(s.t, model, got)
}

func TestARollingUpdateTakesADeploymentToAnotherModelAndBack(t *testing.T) {
	s := newSite(t)
	s.onOneGPU()
	a, b := server{app: "rolling", node: 1}, server{app: "rolled", node: 1}
	s.deploy(a, 1)
	s.served("rolling", 1)
	launcher := s.launcher("launcher-node-1")
	first := s.instances(launcher)["org/rolling"].PID

	// One GPU: the old one makes room before the new one comes.
	s.roll("rolling", b, 0)
	s.alone("rolling", "org/rolled")
	assert.Equal(t, first, s.instance("launcher-node-1", "rolling", "sleeping").PID)
	s.roll("rolling", a, 0)
	s.alone("rolling", "org/rolling")
	assert.Len(t, s.instances(launcher), 2)
	assert.Equal(t, first, s.instance("launcher-node-1", "rolling", "awake").PID, "it was woken")

	// A GPU to spare: the old one serves until the new one does.
	s.kubectl("delete", "pod", "other-gpus")
	s.roll("rolling", server{app: "surged", node: 1}, 1)
	s.alone("rolling", "org/surged")
	assert.Equal(t, first, s.instance("launcher-node-1", "rolling", "sleeping").PID)
	assert.Len(t, s.instances(launcher), 3)
}

func TestStartsAreCancelledWhenTheirDeploymentIsScaledToNothing(t *testing.T) {
	s := newSite(t)
	s.deploy(server{app: "slow", node: 1, args: []string{"--sim-load-time=1h"}}, 3)
	s.eventually("two start, and the third waits for a GPU", func() bool {
		return len(s.pids("slow", []string{"launcher-node-1"}, "starting")) == 2 && len(s.pods("slow")) == 3
	})
	s.scale("slow", 0)
	s.gone("slow")
	assert.Empty(t, s.pids("slow", []string{"launcher-node-1"}, "starting"))
	list, err := s.launcher("launcher-node-1").List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, list.Instances)
	s.free("launcher-node-1")
}

// heldUp makes a requester whose swap waits for its turn behind a model that
// somebody starts by hand, until end deletes that.
func (s *site) heldUp(app string) (end func()) {
	s.t.Helper()
	c := s.launcher("launcher-node-1")
	// On all GPUs of the node: a swap there waits until that has come up or is gone.
	_, err := c.Create(s.t.Context(), "by-hand", launcherapi.InstanceSpec{
		Args: []string{"org/by-hand", "--tensor-parallel-size=2", "--gpu-memory-utilization=0.4", "--sim-load-time=1h"}, GPUUUIDs: s.cluster.UUIDs(1),
	})
	require.NoError(s.t, err)
	s.start(server{app: app, node: 1})
	s.eventually("the swap of the requester waits for its turn", func() bool {
		gpus, err := c.GPUs(s.t.Context())
		return err == nil && gpus.ActiveSwaps+gpus.QueuedSwaps == 1 && len(s.records("launcher-node-1")) == 1
	})
	return func() {
		assert.Equal(s.t, "starting", s.instances(c)["org/by-hand"].State)
		assert.Len(s.t, s.instances(c), 1)
		_, err := c.Delete(s.t.Context(), "by-hand")
		require.NoError(s.t, err)
	}
}

func TestARequesterIsDeletedWhileItsSwapWaitsBehindAnother(t *testing.T) {
	s := newSite(t)
	s.onOneGPU()
	end := s.heldUp("queued")
	s.delete("queued")
	s.gone("queued") // it is called off, and waits for nobody
	s.free("launcher-node-1")
	end()
	s.start(server{app: "next", node: 1})
	next := s.served("next", 1)[0]
	records := s.records("launcher-node-1")
	require.Len(t, records, 1)
	assert.Equal(t, next.UID, records[0].RequesterUID)
	assert.Len(t, s.pids("next", []string{"launcher-node-1"}, "awake"), 1)
}
