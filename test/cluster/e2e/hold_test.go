//go:build cluster

package e2e

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// TestClientThatComesTooEarlyIsServedWhereTheGateIsListed asks two requesters while their
// models start. One lists the readiness gate: its program holds the connection, and the model
// answers. The other one refuses.
func TestClientThatComesTooEarlyIsServedWhereTheGateIsListed(t *testing.T) {
	s := newSite(t)
	s.start(server{app: "plain", node: 1, args: []string{"--sim-load-time=1h"}})
	s.instance("launcher-node-1", "plain", "starting")
	plain := s.pod("plain").Status.PodIP
	proxy, err := s.proxy(plain)
	require.NoError(t, err)
	assert.Equal(t, []any{requesterapi.StateUnbound, true, ""}, []any{proxy.State, proxy.CanHold, proxy.Holding})
	_, err = s.cluster.Dial(t.Context(), "tcp", net.JoinHostPort(plain, "8000"))
	require.ErrorIs(t, err, syscall.ECONNREFUSED)

	s.start(server{app: "gated", node: 1, gate: true, args: []string{"--sim-load-time=3s"}})
	var gated string
	s.eventually("the requester that lists the gate holds connections", func() bool {
		gated = s.pod("gated").Status.PodIP
		if gated == "" {
			return false
		}
		proxy, err := s.proxy(gated)
		return err == nil && proxy.Holding != ""
	})
	for {
		began := time.Now()
		answered, err := s.ask(net.JoinHostPort(gated, "8000"), "org/gated")
		if err == nil {
			assert.Equal(t, "org/gated", answered)
			break
		}
		require.GreaterOrEqual(t, time.Since(began), requesterapi.MaxHold, "%v: a slow machine alone may take longer than a connection is held", err)
	}
	proxy, err = s.proxy(gated)
	require.NoError(t, err)
	assert.Equal(t, []any{requesterapi.StateBound, ""}, []any{proxy.State, proxy.Holding})
	s.ready("pod/gated")
}
