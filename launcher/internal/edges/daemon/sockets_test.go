package daemon

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestEngineSocketAlwaysRefusesAPortOfLoopback(t *testing.T) {
	s := &sockets{mode: "always", host: &process.Host{}, log: slog.New(slog.DiscardHandler)} // has no folder for sockets
	_, err := s.Plan("a", engine.Plan{})
	require.ErrorContains(t, err, "engine_socket is always")
	assert.Equal(t, launcherapi.CodeStorage, launcher.CodeOf(err))
	s.mode = "never"
	_, err = s.Plan("a", engine.Plan{})
	require.ErrorContains(t, err, "engine_socket is never")
	assert.Empty(t, launcher.CodeOf(err), "it listens on a port")
}

// A command without ${SOCKET} has a port, unless engines must not listen on ports.
func TestCommandWithAPortHasNoSocket(t *testing.T) {
	plan := engine.Plan{Listens: engine.PortOnly}
	for _, mode := range []string{"auto", "never"} {
		path, err := (&sockets{mode: mode}).Plan("a", plan)
		require.NoError(t, err)
		assert.Empty(t, path)
	}
	_, err := (&sockets{mode: "always"}).Plan("a", plan)
	assert.Equal(t, launcherapi.CodeInvalid, launcher.CodeOf(err))
	assert.ErrorContains(t, err, "put ${SOCKET} into the command")
}
