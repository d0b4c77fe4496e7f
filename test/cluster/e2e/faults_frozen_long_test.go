//go:build cluster && clusterlong

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/test/cluster"
)

// freeze stops a controller's process, until thaw lets it go on.
func (s *site) freeze(pod corev1.Pod) (thaw func()) {
	s.t.Helper()
	s.signalController(s.t.Context(), pod, "STOP")
	frozen := true
	thaw = func() {
		if frozen {
			frozen = false
			s.signalController(context.Background(), pod, "CONT")
		}
	}
	s.t.Cleanup(thaw)
	return thaw
}

// restarts is how often the container of a Pod was started again.
func (s *site) restarts(pod corev1.Pod) int32 {
	s.t.Helper()
	var now corev1.Pod
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKeyFromObject(&pod), &now))
	require.Equal(s.t, pod.UID, now.UID)
	require.Len(s.t, now.Status.ContainerStatuses, 1)
	return now.Status.ContainerStatuses[0].RestartCount
}

func TestARequesterProgramThatIsFrozenIsToldAndServesOnceItGoesOn(t *testing.T) {
	s := newSite(t)
	s.deploy(server{app: "frozen", node: 1}, 1)
	pod := s.served("frozen", 1)[0]
	signal := func(ctx context.Context, name string) {
		_, err := s.cluster.Signal(ctx, 1, name, cluster.Process{CommandLine: "^/requester", Variable: "HOSTNAME=" + pod.Name})
		require.NoError(t, err)
	}
	signal(t.Context(), "STOP")
	s.eventually("the status says so", func() bool {
		status := s.status(pod.Name)
		return status.Reason == "RequesterSilent" && strings.HasPrefix(status.Message, "the requester program does not answer at ")
	})
	signal(context.Background(), "CONT")
	s.eventually("it serves", func() bool { return s.status(pod.Name).State == "Serving" })
	assert.Equal(t, pod.UID, s.served("frozen", 1)[0].UID)
	s.answers("frozen")
}

// TestALeaderThatWasFrozenUntilAnotherLedTouchesNothingWhenItWakes freezes a leader
// that waits until it can put a model to sleep. The next one does so, has another
// model take its turn, and has that one awake again by the time the first wakes.
func TestALeaderThatWasFrozenUntilAnotherLedTouchesNothingWhenItWakes(t *testing.T) {
	s := newSite(t)
	s.onOneGPU()
	s.twoControllers()
	s.deploy(server{app: "talker", node: 1, args: slowly}, 1)
	pod := s.served("talker", 1)[0]
	_, in := s.stream(pod.Status.PodIP, "org/talker", 100)
	s.scale("talker", 0)
	s.draining(pod.Status.PodIP)
	was := s.controller()
	restarts := s.restarts(was)
	thaw := s.freeze(was)
	frozen := time.Now()
	for last := ""; !strings.Contains(last, "[DONE]"); {
		var err error
		last, err = in.ReadString('\n')
		require.NoError(t, err)
	}
	s.eventually("another controller leads", func() bool {
		now := s.leader()
		return now != "" && !strings.HasPrefix(now, was.Name+"_")
	})
	t.Logf("another controller led %.1f s after the leader was frozen", time.Since(frozen).Seconds())
	s.gone("talker")
	s.instance("launcher-node-1", "talker", "sleeping")
	s.deploy(server{app: "next", node: 1}, 1)
	s.served("next", 1)
	s.scale("next", 0)
	s.gone("next")
	s.scale("talker", 1)
	again := s.served("talker", 1)[0]
	s.answers("talker")
	i := s.instance("launcher-node-1", "talker", "awake")
	leader := s.leader()

	woke := time.Now()
	thaw()
	s.eventually("the one that was frozen ends, and is started again", func() bool { return s.restarts(was) == restarts+1 })
	s.stays("the requester serves", func() bool {
		pods := s.pods("talker")
		return len(pods) == 1 && ready(&pods[0]) && pods[0].UID == again.UID
	})
	now := s.instance("launcher-node-1", "talker", "awake")
	assert.Equal(t, i.Revision, now.Revision, "nobody touched it")
	assert.Equal(t, leader, s.leader())
	records := s.records("launcher-node-1")
	require.Len(t, records, 1)
	assert.Equal(t, again.UID, records[0].RequesterUID)
	out, err := s.cluster.Kubectl(t.Context(), nil, "-n", system, "logs", was.Name, "--previous", fmt.Sprintf("--since-time=%s", woke.UTC().Format(time.RFC3339)))
	require.NoError(t, err)
	t.Logf("what it said when it woke:\n%s", out)
	assert.NotContains(t, string(out), `"step"`, "it took no step")
	s.answers("talker")
}
