//go:build cluster && clusterlong

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// apiAway ends the API server, and gives what brings it back: that returns when
// the server answers.
func (s *site) apiAway() (back func()) {
	s.t.Helper()
	start, err := s.cluster.Stop(s.t.Context(), cluster.APIServer)
	require.NoError(s.t, err)
	came := false
	back = func() {
		if came {
			return
		}
		came = true
		require.NoError(s.t, start())
		ctx, stop := context.WithTimeout(context.Background(), patience.Wait())
		defer stop()
		s.eventually("the API server answers", func() bool {
			_, err := s.cluster.Kubectl(ctx, nil, "get", "--raw", "/readyz")
			return err == nil
		})
	}
	s.t.Cleanup(back)
	return back
}

// controllerProcesses are the numbers of the controllers' processes, by node:
// what can be seen of controllers while the API server is away.
func (s *site) controllerProcesses() (all string) {
	s.t.Helper()
	for node := 1; node <= s.cluster.Nodes; node++ {
		cmd, err := s.cluster.InNode(s.t.Context(), node, "pgrep", "-f", controllerProgram)
		require.NoError(s.t, err)
		out, _ := cmd.Output() // an error says that there is none
		all += strings.TrimSpace(string(out)) + ";"
	}
	return all
}

// TestAMinuteWithoutTheAPIServerHarmsNothing takes the API server away in the
// middle of a swap and of a requester's deletion, until the controller that led
// has given up its Lease, and for a minute at least.
func TestAMinuteWithoutTheAPIServerHarmsNothing(t *testing.T) {
	s := newSite(t)
	s.addLauncher(2)
	s.start(server{app: "steady", node: 2})
	s.start(server{app: "leaver", node: 1, args: slowly})
	leaver, steady := s.served("leaver", 1)[0], s.served("steady", 1)[0]
	serving := s.instance("launcher-node-2", "steady", "awake")
	s.deploy(server{app: "slow", node: 1, args: []string{"--sim-load-time=5s"}}, 1)
	starting := s.instance("launcher-node-1", "slow", "starting")
	s.stream(leaver.Status.PodIP, "org/leaver", 120)
	s.delete("leaver")
	s.draining(leaver.Status.PodIP)
	launcher, was := s.launcher("launcher-node-1"), s.controllerProcesses()

	back := s.apiAway()
	since := time.Now()
	s.eventually("the controller has given up its Lease, and its container was started again", func() bool {
		now := s.controllerProcesses()
		return now != was && strings.Trim(now, ";") != ""
	})
	s.eventually("the launcher ends the swap by itself", func() bool { return s.instances(launcher)["org/slow"].State == "awake" })
	s.stillAnswers(steady)
	for time.Since(since) < time.Minute {
		<-time.After(time.Second)
		s.stillAnswers(steady)
	}
	back()
	answered := time.Now()
	s.served("slow", 1)
	t.Logf("the API server was away for %.1f s; the requester that waited was served %.1f s after it came back", answered.Sub(since).Seconds(), time.Since(answered).Seconds())
	s.answers("slow")
	s.startedOnce(starting, "slow")
	s.gone("leaver")
	s.instance("launcher-node-1", "leaver", "sleeping")
	assert.Equal(t, steady.UID, s.served("steady", 1)[0].UID)
	assert.Equal(t, serving.Revision, s.instance("launcher-node-2", "steady", "awake").Revision, "nobody touched it")
	assert.Equal(t, "Serving", s.status("steady").State)
}

// stillAnswers says that a requester's model answers now.
func (s *site) stillAnswers(pod corev1.Pod) {
	s.t.Helper()
	model, err := s.ask(pod.Status.PodIP+":8000", "org/"+pod.Labels["app"])
	require.NoError(s.t, err)
	assert.Equal(s.t, "org/"+pod.Labels["app"], model)
}
