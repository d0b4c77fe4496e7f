package e2e

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/harness"
)

// A program that cleans up folders may remove the socket of an engine.

func TestModelWhoseSocketIsRemovedFailsAndStartsAgain(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"while the launcher runs": false, "while no launcher runs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t, "--hang-timeout", "500ms")
			a := n.Awake("a", On(0))
			address := engineAddress(t, a)
			require.Equal(t, "unix", harness.Network(address))
			if restart {
				n.awaitRecords() // else the next launcher gives the engine all the time of a start
				n.Kill9()
			}
			require.NoError(t, os.Remove(address))
			if restart {
				n.Start()
				assert.NotEqual(t, "awake", n.Get("a").State)
			} else {
				got := call(t, "POST", publicURL(a, "/v1/completions"), map[string]any{"prompt": "hello"})
				assert.Equal(t, 503, got.Status, "%s", got.Body)
				assert.Contains(t, string(got.Body), "the engine does not listen")
			}
			a = n.Await("a", "failed")
			assert.Equal(t, "not_listening", a.Cause)
			assert.Contains(t, a.Reason, "its process ran, and nothing listened at its socket "+address)
			n.SwapDone(to("a")) // it starts again
			n.Ask(n.Get("a"), "hello")
		})
	}
}

func TestPublicPortComesBackAtALaterRestart(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	port := freePort(t)
	n.Awake("a", On(0), "--port", port)
	n.Kill9()
	other, err := net.Listen("tcp", "127.0.0.1:"+port)
	require.NoError(t, err)
	n.Start()
	a := n.Get("a")
	assert.NotEqual(t, port, fmt.Sprint(a.Port))
	assert.Contains(t, a.Reason, "another process took its port "+port)
	n.Ask(a, "hello")
	n.Kill9()
	require.NoError(t, other.Close())
	n.Start()
	a = n.Get("a")
	assert.Equal(t, port, fmt.Sprint(a.Port))
	assert.Empty(t, a.Reason)
	n.Ask(a, "hello")
}
