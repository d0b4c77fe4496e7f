//go:build cluster

package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/cluster"
)

// told waits until status and an Event of a requester say that.
func (s *site) told(pod, what string) {
	s.t.Helper()
	s.eventually("the status of "+pod+" says: "+what, func() bool {
		status := s.status(pod)
		return strings.Contains(strings.Join(append(status.Errors, status.Message), "\n"), what)
	})
	s.eventually("an Event of "+pod+" says: "+what, func() bool { return strings.Contains(strings.Join(s.events(pod), "\n"), what) })
}

func TestWrongInputIsToldOnTheRequesterAndNothingIsMadeOfIt(t *testing.T) {
	s := newSite(t)
	s.onOneGPU()
	secret := corev1.EnvVar{Name: "HF_TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "hf"}, Key: "token",
	}}}
	for what, v := range map[string]server{
		"is no YAML": {app: "no-yaml", patch: "spec: ["},
		"a Secret":   {app: "secret", env: []corev1.EnvVar{secret}},
		"there is no InferenceServerConfig nowhere in namespace " + s.ns: {app: "no-config", config: "nowhere"},
	} {
		v.node = 1
		s.start(v)
		s.told(v.app, what)
		assert.Equal(t, s.hasPolicyForRequesters(), podmeta.Held(s.pod(v.app)), "the controller does not hold it")
		s.delete(v.app)
		s.gone(v.app)
	}
	// One without the container that holds the GPUs.
	template := server{app: "nameless", node: 1}.template(t)
	template.Spec.Containers[0].Name = "main"
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = s.ns, "nameless"
	require.NoError(t, s.api.Create(t.Context(), pod))
	s.told("nameless", "none is named "+podmeta.ServingContainer)
	s.delete("nameless")
	s.gone("nameless")
	assert.Empty(t, s.instances(s.launcher("launcher-node-1")))
	assert.Empty(t, s.records("launcher-node-1"))
	assert.Empty(t, s.pod("launcher-node-1").Finalizers)
}

func TestARequesterWhoseInputIsMendedIsServed(t *testing.T) {
	s := newSite(t)
	s.start(server{app: "mended", node: 1, patch: "spec: ["})
	s.told("mended", "is no YAML")
	s.kubectl("annotate", "--overwrite", "pod/mended", podmeta.AnnotationServerPatch+"="+server{app: "mended"}.serverPatch(t))
	pod := s.served("mended", 1)[0]
	model, err := s.ask(pod.Status.PodIP+":8000", "org/mended")
	require.NoError(t, err)
	assert.Equal(t, "org/mended", model)
	s.eventually("the status tells of no error any more", func() bool {
		status := s.status("mended")
		return len(status.Errors) == 0 && status.Message == "" && status.State == "Serving"
	})
}

func TestAControllerThatIsKilledWhileAModelStartsFindsItStarted(t *testing.T) {
	s := newSite(t)
	s.deploy(server{app: "slow", node: 1, args: []string{"--sim-load-time=3s"}}, 1)
	i := s.instance("launcher-node-1", "slow", "starting")
	pod, lease := s.controller(), s.lease()
	s.killController(pod)
	s.instance("launcher-node-1", "slow", "awake")
	s.served("slow", 1)
	now := s.lease()
	assert.Equal(t, lease.Spec.HolderIdentity, now.Spec.HolderIdentity, "the container that was started again leads, without waiting for the Lease to run out")
	assert.Equal(t, lease.Spec.LeaseTransitions, now.Spec.LeaseTransitions)
	s.answers("slow")
	there := s.instances(s.launcher("launcher-node-1"))
	require.Len(t, there, 1)
	assert.Equal(t, i.CreatedAt, there["org/slow"].CreatedAt, "it was started once")
	records := s.records("launcher-node-1")
	require.Len(t, records, 1)
	assert.Equal(t, 1, records[0].Attempt)
}

func TestALauncherThatIsKilledIsNotTakenForACrashOfItsModels(t *testing.T) {
	s := newSite(t)
	s.deploy(server{app: "steady", node: 1}, 1)
	pod := s.served("steady", 1)[0]
	c := s.launcher("launcher-node-1")
	born := func() string { // when the launcher's process began
		metrics, err := c.Metrics(t.Context())
		if err != nil {
			return ""
		}
		return regexp.MustCompile(`(?m)^process_start_time_seconds .*$`).FindString(string(metrics))
	}
	before := born()
	require.NotEmpty(t, before)
	i := s.instance("launcher-node-1", "steady", "awake")
	s.killProcess(1, cluster.Process{CommandLine: "^/launcher serve "})
	s.eventually("the launcher is back", func() bool { now := born(); return now != "" && now != before })
	assert.Equal(t, i.PID, s.instance("launcher-node-1", "steady", "awake").PID)
	s.answers("steady")
	s.stays("the requester serves", func() bool {
		pods := s.pods("steady")
		return len(pods) == 1 && ready(&pods[0]) && pods[0].UID == pod.UID
	})
	s.scale("steady", 0)
	s.gone("steady")
	s.instance("launcher-node-1", "steady", "sleeping")
}
