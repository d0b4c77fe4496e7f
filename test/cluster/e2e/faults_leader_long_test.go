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

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// twoControllers gives the controller a second replica until the test ends.
func (s *site) twoControllers() {
	s.t.Helper()
	scale := func(ctx context.Context, n int) {
		_, err := s.cluster.Kubectl(ctx, nil, "-n", system, "scale", "deployment/"+controllers, fmt.Sprintf("--replicas=%d", n))
		assert.NoError(s.t, err)
	}
	scale(s.t.Context(), 2)
	s.t.Cleanup(func() { scale(context.Background(), 1) })
	s.eventually("two controllers are ready", func() bool {
		pods := s.controllers()
		return len(pods) == 2 && readyPod(&pods[0]) && readyPod(&pods[1])
	})
}

// anotherLeads deletes the controller's Pod, and waits until another one leads.
func (s *site) anotherLeads() {
	s.t.Helper()
	pod, was := s.controller(), s.leader()
	require.NoError(s.t, s.api.Delete(s.t.Context(), &pod))
	s.eventually("another controller leads", func() bool { now := s.leader(); return now != "" && now != was })
}

func TestTheOtherControllerGoesOnWhenTheLeaderIsKilledInTheMiddleOfASwap(t *testing.T) {
	s := newSite(t)
	s.twoControllers()
	s.deploy(server{app: "steady", node: 1}, 1)
	steady := s.served("steady", 1)[0]
	awake := s.instance("launcher-node-1", "steady", "awake")
	s.deploy(server{app: "slow", node: 1, args: []string{"--sim-load-time=3s"}}, 1)
	starting := s.instance("launcher-node-1", "slow", "starting")

	was := s.controller()
	s.killController(was)
	killed := time.Now()
	require.NoError(t, s.api.Delete(t.Context(), &was)) // or its container would be started again, and lead
	s.eventually("the other one leads", func() bool {
		now := s.leader()
		return now != "" && !strings.HasPrefix(now, was.Name+"_")
	})
	t.Logf("another controller led %.1f s after the leader was killed", time.Since(killed).Seconds())
	s.served("slow", 1)
	s.answers("slow")
	s.startedOnce(starting, "slow")
	assert.Equal(t, steady.UID, s.served("steady", 1)[0].UID)
	assert.Equal(t, awake.Revision, s.instance("launcher-node-1", "steady", "awake").Revision, "nobody touched it")
	s.scale("slow", 0)
	s.gone("slow")
	s.instance("launcher-node-1", "slow", "sleeping")
}

// startedOnce says that an instance that was seen before is the only one of its
// app, was started once, for the one record of it, and by the first attempt.
func (s *site) startedOnce(seen launcherapi.Instance, app string) {
	s.t.Helper()
	now := s.instances(s.launcher("launcher-node-1"))["org/"+app]
	assert.Equal(s.t, seen.InstanceID, now.InstanceID)
	assert.Equal(s.t, seen.CreatedAt, now.CreatedAt, "it was started once")
	var records []podmeta.Binding
	for _, b := range s.records("launcher-node-1") {
		if b.Instance == seen.InstanceID {
			records = append(records, b)
		}
	}
	require.Len(s.t, records, 1)
	assert.Equal(s.t, 1, records[0].Attempt)
}

func TestAControllerThatIsReplacedTouchesNothingThatServesAndEndsWhatWasBegun(t *testing.T) {
	s := newSite(t)
	s.deploy(server{app: "talker", node: 1, args: slowly}, 1)
	pod := s.served("talker", 1)[0]
	i := s.instance("launcher-node-1", "talker", "awake")
	s.anotherLeads()
	s.stays("the requester serves", func() bool {
		pods := s.pods("talker")
		return len(pods) == 1 && ready(&pods[0]) && pods[0].UID == pod.UID
	})
	assert.Equal(t, i.Revision, s.instance("launcher-node-1", "talker", "awake").Revision)

	_, in := s.stream(pod.Status.PodIP, "org/talker", 120)
	s.scale("talker", 0)
	s.draining(pod.Status.PodIP)
	s.anotherLeads()
	var last string
	for !strings.Contains(last, "[DONE]") {
		var err error
		last, err = in.ReadString('\n')
		require.NoError(t, err)
	}
	s.gone("talker")
	assert.Equal(t, i.PID, s.instance("launcher-node-1", "talker", "sleeping").PID)
	s.free("launcher-node-1")
}
