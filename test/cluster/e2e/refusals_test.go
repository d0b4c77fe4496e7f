//go:build cluster

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestARequesterThatRefusesToBindIsToldWhyAndServedOnceItAsksForAnotherPort(t *testing.T) {
	s := newSite(t)
	v := server{app: "squatted", node: 1}
	template := v.template(t)
	template.Spec.Containers = append(template.Spec.Containers, corev1.Container{
		Name: "squatter", Image: "hotseat.local/requester:dev", ImagePullPolicy: corev1.PullIfNotPresent,
		Args: []string{"--probes-port=8000", "--spi-port=8085"},
	})
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = s.ns, "squatted"
	require.NoError(t, s.api.Create(t.Context(), pod))
	s.told("squatted", "serving_port 8000 is in use by another program of this Pod")
	assert.True(t, slices.Contains(s.reasons(pod), "Warning RequesterRefuses"))
	status := s.status("squatted")
	assert.Equal(t, "Waiting", status.State)
	assert.Equal(t, "RequesterRefuses", status.Reason)
	assert.False(t, readyPod(s.pod("squatted")))
	i := s.instance("launcher-node-1", "squatted", "awake")

	patch := strings.Replace(v.serverPatch(t), "--port=8000", "--port=8001", 1)
	s.kubectl("annotate", "--overwrite", "pod/squatted", podmeta.AnnotationServerPatch+"="+patch)
	now := s.served("squatted", 1)[0]
	model, err := s.ask(now.Status.PodIP+":8001", "org/squatted")
	require.NoError(t, err)
	assert.Equal(t, "org/squatted", model)
	assert.Equal(t, i.PID, s.instance("launcher-node-1", "squatted", "awake").PID)
	s.eventually("the status tells of no refusal any more", func() bool {
		status := s.status("squatted")
		return status.State == "Serving" && status.Message == "" && status.Reason == ""
	})
}

func TestARequesterThatComesBeforeItsLauncherConfigIsToldSoAndServedOnceThatIsMade(t *testing.T) {
	s := newBareSite(t)
	pod := s.start(server{app: "early", node: 1})
	s.told("early", "there is no LauncherConfig simulated in namespace "+s.ns+": create it, or name another one")
	assert.True(t, slices.Contains(s.reasons(pod), "Warning LauncherMissing"))
	assert.Equal(t, s.hasPolicyForRequesters(), podmeta.Held(s.pod("early")), "the controller does not hold it")
	s.addPool(nil)
	now := s.served("early", 1)[0]
	assert.Equal(t, pod.UID, now.UID)
	model, err := s.ask(now.Status.PodIP+":8000", "org/early")
	require.NoError(t, err)
	assert.Equal(t, "org/early", model)
	s.eventually("the status tells of nothing missing any more", func() bool {
		status := s.status("early")
		return status.State == "Serving" && status.Message == "" && status.Reason == ""
	})
}
