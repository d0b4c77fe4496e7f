//go:build cluster && clusterlong

package e2e

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/podmeta"
)

// cutOff lets no packet reach or leave the launcher on the first node, but on
// its loopback, until heal.
func (s *site) cutOff() (heal func()) {
	s.t.Helper()
	const enter = `pid=$(pgrep -f -o '^/launcher serve') && exec nsenter --net=/proc/$pid/ns/net nft `
	nft := func(ctx context.Context, command string) (*exec.Cmd, error) {
		return s.cluster.InNode(ctx, 1, "sh", "-c", enter+command)
	}
	cmd, err := nft(s.t.Context(), "-f -")
	require.NoError(s.t, err)
	cmd.Stdin = strings.NewReader(`table inet cut {
		chain in { type filter hook input priority 0; iifname "eth0" drop; }
		chain out { type filter hook output priority 0; oifname "eth0" drop; }
	}`)
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "%s", out)
	healed := false
	heal = func() {
		if healed {
			return
		}
		healed = true
		cmd, err := nft(context.Background(), "delete table inet cut")
		require.NoError(s.t, err)
		out, err := cmd.CombinedOutput()
		require.NoError(s.t, err, "%s", out)
	}
	s.t.Cleanup(heal)
	return heal
}

// TestAMinuteWithoutALauncherHarmsNothing cuts a launcher off in the middle of a
// swap, until people are told that it does not answer, and for a minute at least.
func TestAMinuteWithoutALauncherHarmsNothing(t *testing.T) {
	s := newSite(t)
	s.start(server{app: "steady", node: 1})
	steady := s.served("steady", 1)[0]
	awake := s.instance("launcher-node-1", "steady", "awake")
	s.deploy(server{app: "slow", node: 1, args: []string{"--sim-load-time=3s"}}, 1)
	starting := s.instance("launcher-node-1", "slow", "starting")
	slow := s.pods("slow")[0]

	heal := s.cutOff()
	since := time.Now()
	s.told("steady", "does not answer")
	t.Logf("it was told %.1f s after the launcher was cut off", time.Since(since).Seconds())
	now := s.pod("steady")
	assert.Equal(t, steady.UID, now.UID)
	assert.Zero(t, now.DeletionTimestamp, "nobody takes it for dead")
	s.told(slow.Name, "does not answer")
	s.delete("steady")
	s.told("steady", "cannot be put to sleep")
	for time.Since(since) < time.Minute {
		<-time.After(time.Second)
	}
	assert.Contains(t, s.pod("steady").Finalizers, podmeta.FinalizerRequester, "its model is awake perhaps")
	assert.Len(t, s.records("launcher-node-1"), 2)
	heal()
	answered := time.Now()
	served := s.served("slow", 1)[0]
	t.Logf("the requester that waited was served %.1f s after the launcher was back, which had been away for %.1f s", time.Since(answered).Seconds(), answered.Sub(since).Seconds())
	assert.Equal(t, slow.UID, served.UID)
	s.answers("slow")
	s.startedOnce(starting, "slow")
	s.gone("steady")
	assert.Equal(t, awake.PID, s.instance("launcher-node-1", "steady", "sleeping").PID)
	s.eventually("the status tells of it no more", func() bool { return s.status(served.Name).State == "Serving" })
}
