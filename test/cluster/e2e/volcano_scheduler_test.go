//go:build cluster && volcano

package e2e

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"hotseat.dev/hotseat/deploy/images"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// installVolcano installs Volcano's scheduler and its kinds, by Volcano's chart, while the test
// runs, and returns a client for these. Neither its controllers nor its webhooks are there, so the
// test itself writes that the queue is open, as the controller of queues would.
func (s *site) installVolcano() client.Client {
	s.t.Helper()
	program, chart, err := cluster.VolcanoScheduler(s.t.Context(), os.Stderr)
	require.NoError(s.t, err)
	image := images.Image{Files: map[string]string{"/vc-scheduler": program}, User: "1000:1000"}
	require.NoError(s.t, s.cluster.LoadImage(s.t.Context(), "hotseat.local/vc-scheduler:dev", image))
	s.installOthersChart("volcano", chart, "basic.image_registry=hotseat.local", "basic.scheduler_image_name=vc-scheduler", "basic.image_tag_version=dev", "basic.image_pull_policy=Never",
		"custom.admission_enable=false", "custom.controller_enable=false")
	scheme := runtime.NewScheme()
	require.NoError(s.t, volcano.AddToScheme(scheme))
	api, err := client.New(s.rest, client.Options{Scheme: scheme})
	require.NoError(s.t, err)
	s.eventually("the queue that the scheduler has made is open", func() bool {
		var queue volcano.Queue
		if api.Get(s.t.Context(), client.ObjectKey{Name: "default"}, &queue) != nil {
			return false
		}
		queue.Status.State = volcano.QueueStateOpen
		return api.Status().Update(s.t.Context(), &queue) == nil
	})
	return api
}

// TestVolcanoPlacesCountedPodsTogether first builds Volcano's scheduler: `make test-cluster-volcano`.
func TestVolcanoPlacesCountedPodsTogether(t *testing.T) {
	s := newPool(t, nil)
	api := s.installVolcano()
	phase := func() volcano.PodGroupPhase {
		var group volcano.PodGroup
		if api.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "llama-0"}, &group) != nil {
			return ""
		}
		return group.Status.Phase
	}
	s.onOneGPU()
	s.onOneGPUOf(2, "0")
	s.start(server{app: "other"})
	s.served("other", 1)
	s.gang("llama", 2, 2, func(serving *v1alpha1.ModelServing) { serving.Spec.SchedulerName = "volcano" })
	s.eventually("Volcano has seen the group", func() bool { return phase() != "" })
	s.stays("no Pod of it has a node", func() bool { placed, _ := s.onNodes("llama"); return placed == 0 })

	s.kubectl("delete", "pod/other", "--timeout="+patience.Wait().String())
	s.runs("llama", 1)
	s.served("llama", 2)
	assert.Equal(t, volcano.PodGroupRunning, phase())
	for _, pod := range s.pods("llama") {
		assert.Equal(t, "volcano", pod.Spec.SchedulerName)
	}
}
