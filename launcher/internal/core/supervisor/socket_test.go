package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// fakeSockets puts every socket into a folder; "": there can be no sockets.
type fakeSockets struct{ dir string }

func (s fakeSockets) Plan(id string, _ engine.Plan) (string, error) {
	if s.dir == "" {
		return "", errors.New("the vllm has no --uds")
	}
	return s.dir + "/" + id + "/http", nil
}

func (s fakeSockets) Now(id, told string) string {
	if s.dir == "" {
		return told
	}
	return s.dir + "/" + id + "/http"
}

func onSockets(dir string) func(*Options) {
	return func(o *Options) { o.Sockets = fakeSockets{dir} }
}

func TestEngineListensOnItsSocketAlone(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.4")
		const socket = "/run/a/http"
		command := r.runner.started[0]
		assert.Equal(t, socket, command.Socket)
		line := strings.Join(command.Args, " ")
		assert.Contains(t, line, "/bin/engine serve model --uds "+socket+" ")
		assert.NotContains(t, line, "--port")
		asked := r.gates.asked["a"]
		assert.Equal(t, socket, asked.TargetSocket)
		assert.Zero(t, asked.TargetPort)
		assert.Equal(t, 5*time.Second, asked.KeepAlive)
		r.asleep("a")
		assert.True(t, r.engine.asleep[engine.SocketBase(socket)], "the calls went there")
		r.under(func() { assert.Nil(t, r.instances["a"].private, "no port is reserved") })
		assert.NotContains(t, r.logged("a"), "loopback")
	}, onSockets("/run"))
}

// logged returns what stands in the log of an instance.
func (r *rig) logged(id string) string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.opts.Logs.(fakeLogs).dir, id+".log"))
	require.NoError(r.t, err)
	return string(text)
}

func TestEngineWithoutASocketSaysSoInItsLog(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.4")
		assert.Contains(t, r.logged("a"), "every local user reaches its developer endpoints (/sleep, /collective_rpc): the vllm has no --uds")
		assert.Contains(t, strings.Join(r.runner.started[0].Args, " "), "--host 127.0.0.1 --port 4000")
		assert.Empty(t, r.runner.started[0].Socket)
		assert.NotZero(t, r.gates.asked["a"].TargetPort)
	}, onSockets(""))
}

// noSockets refuses every engine.
type noSockets struct{ fakeSockets }

func (noSockets) Plan(string, engine.Plan) (string, error) {
	return "", launcher.Storagef("the engine has no place for its Unix socket")
}

func TestEngineThatMayHaveNoPortIsRefused(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		_, err := r.Create(launcher.CreateRequest{ID: "a", Spec: spec("0.4")})
		require.ErrorContains(t, err, "has no place for its Unix socket")
		assert.Equal(t, launcherapi.CodeStorage, launcher.CodeOf(err))
		assert.Empty(t, r.runner.started)
	}, func(o *Options) { o.Sockets = noSockets{} })
}

func TestRestartFindsEnginesWhereverTheyListen(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.opts.Sockets = fakeSockets{""}
		r.awake("port", "0.2")
		port := r.gates.asked["port"].TargetPort
		r.opts.Sockets = fakeSockets{"/run"}
		r.awake("socket", "0.2")
		memory := remembered(t, r)
		fresh, _ := nextLife(t, r, onSockets("/moved/run"))
		defer fresh.Close(context.Background(), false)
		require.NoError(t, fresh.Recover(t.Context(), memory))
		assert.Equal(t, port, fresh.gates.asked["port"].TargetPort)
		assert.Empty(t, fresh.gates.asked["port"].TargetSocket)
		assert.Equal(t, "/moved/run/socket/http", fresh.gates.asked["socket"].TargetSocket, "the state folder was renamed")
		assert.Equal(t, 5*time.Second, fresh.gates.asked["socket"].KeepAlive)
		fresh.asleep("port")
		fresh.asleep("socket")
		assert.True(t, fresh.engine.asleep[engine.PortBase(port)])
		assert.True(t, fresh.engine.asleep[engine.SocketBase("/moved/run/socket/http")])
	})
}

func TestSwapReservesNoPortForAnEngineOnASocket(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("out", "0.4")
		ask := r.toMake("s", "in")
		ask.Plan.Out = []string{"out"}
		c := r.claims(ask)
		r.under(func() {
			assert.Nil(t, c.ports.private)
			assert.True(t, c.hasPort(c.ports.gate.Port()))
		})
		require.NoError(t, c.Start(t.Context()))
		assert.Equal(t, "/run/in/http", r.gates.asked["in"].TargetSocket)
		c.Release()
	}, onSockets("/run"))
}
