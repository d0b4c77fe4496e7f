package e2e

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// What an instance's options may not move: where it listens, and what a path
// at its public port means.

// developerPaths are the engine's developer endpoints, as they are and as they
// would be reached below a root path.
var developerPaths = []struct{ method, path string }{
	{http.MethodGet, "/is_sleeping"}, {http.MethodGet, "/v1/is_sleeping"},
	{http.MethodPost, "/sleep"}, {http.MethodPost, "/v1/sleep"},
	{http.MethodPost, "/collective_rpc"}, {http.MethodPost, "/v1/collective_rpc"},
}

func TestNoOptionOpensTheDevelopersEndpointsAtThePublicPort(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	moved := filepath.Join(t.TempDir(), "moved.yaml")
	require.NoError(t, os.WriteFile(moved, []byte("\ufeffroot-path: /v1\ndtype: auto\n"), 0o600))
	for name, tt := range map[string]struct {
		options, flag string
	}{
		"a root path":                            {"--root-path /v1", "--root-path"},
		"a root path behind =":                   {"--root-path=/v1", "--root-path"},
		"a root path with an underscore":         {"--root_path /v1", "--root-path"},
		"an abbreviated root path":               {"--root-p /v1", "--root-path"},
		"a root path in a file that has a BOM":   {"--config " + moved, "--root-path"},
		"a middleware, which may rewrite a path": {"--middleware some.module.Prefix", "--middleware"},
		"a Unix socket":                          {"--uds /tmp/s", "--uds"},
		"TLS":                                    {"--ssl-keyfile k --ssl-certfile c", "--ssl-keyfile"},
	} {
		t.Run(name, func(t *testing.T) {
			made := n.Call("PUT", instances+"/moved", map[string]any{"options": "m --served-model-name m " + tt.options, "gpu_uuids": On(0)})
			if !assert.Equal(t, 422, made.Status, "%s", made.Body) {
				i := n.Await("moved", "awake")
				requireClosed(t, func(method, path string) int { return call(t, method, publicURL(i, path), nil).Status })
				n.Delete("moved")
				return
			}
			assert.Contains(t, made.Problem(t).Detail, tt.flag)
		})
	}
	n.empty()

	i := n.Awake("plain", On(0), "--api-key", "sk-s3cret")
	requireClosed(t, func(method, path string) int {
		return call(t, method, publicURL(i, path), nil, "Authorization", "Bearer sk-s3cret").Status
	})
	assert.Equal(t, "awake", n.Get("plain").State)
	log := string(n.Call("GET", instances+"/plain/log", nil).Body)
	assert.False(t, strings.Contains(log, `"POST /sleep`), "the engine was told to sleep:\n%s", log)
}

// requireClosed asks for the developer endpoints, each of which has to be 404.
func requireClosed(t *testing.T, status func(method, path string) int) {
	t.Helper()
	for _, p := range developerPaths {
		assert.Equal(t, 404, status(p.method, p.path), "%s %s", p.method, p.path)
	}
}

// reaches says whether an instance's public port can be had at an address. A
// port at 0.0.0.0 can be had at all of 127.0.0.0/8, one at 127.0.0.1 only there.
func reaches(t *testing.T, i launcherapi.Instance, host string) bool {
	t.Helper()
	dialer := net.Dialer{Timeout: patience}
	conn, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(host, strconv.Itoa(i.Port)))
	if err != nil {
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		return false
	}
	require.NoError(t, conn.Close())
	return true
}

func TestAHostInOptionsNeverWidensWhereAnInstanceListens(t *testing.T) {
	t.Parallel()
	const everywhere = ":: 0.0.0.0" // the latter where there is no IPv6
	file := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(file, []byte("host: 0.0.0.0\n"), 0o600))
	for name, tt := range map[string]struct {
		launcher string // its instance_host; empty: the default
		options  string
		listens  string
		note     string // in the log of the instance
	}{
		"everywhere becomes the default":      {"", "--host 0.0.0.0", "127.0.0.1", "--host 0.0.0.0 reaches further than"},
		"everywhere behind =":                 {"", "--host=0.0.0.0", "127.0.0.1", "instance_host"},
		"everywhere by IPv6":                  {"", "--host ::", "127.0.0.1", "--host :: reaches further than"},
		"everywhere from a file":              {"", "--config " + file, "127.0.0.1", "listens on 127.0.0.1"},
		"everywhere becomes what is set":      {"127.0.0.2", "--host 0.0.0.0", "127.0.0.2", "listens on 127.0.0.2"},
		"the same is honoured":                {"127.0.0.2", "--host 127.0.0.2", "127.0.0.2", ""},
		"none is what is set":                 {"127.0.0.2", "", "127.0.0.2", ""},
		"a narrower one is honoured":          {"0.0.0.0", "--host 127.0.0.1", "127.0.0.1", "listens on 127.0.0.1"},
		"everywhere, where that is the limit": {"0.0.0.0", "--host 0.0.0.0", everywhere, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var flags []string
			if tt.launcher != "" {
				flags = []string{"--instance-host", tt.launcher}
			}
			n := NewNode(t, flags...)
			made := n.Create("a", map[string]any{"options": "m --served-model-name m " + tt.options, "gpu_uuids": On(0)})
			look := func(i launcherapi.Instance) {
				assert.Contains(t, strings.Split(tt.listens, " "), i.Host)
				for _, host := range []string{"127.0.0.1", "127.0.0.2"} {
					assert.Equal(t, host == tt.listens || tt.listens == everywhere, reaches(t, i, host), host)
				}
			}
			look(made)
			look(n.Await("a", "awake"))
			log := string(n.Call("GET", instances+"/a/log", nil).Body)
			assert.Contains(t, log, tt.note)
			n.Kill9()
			n.Start()
			look(n.Await("a", "awake"))
			n.Delete("a")
		})
	}
}

func TestAHostThatIsNotOfTheLauncherIsRefused(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	for _, host := range []string{"10.1.2.3", "gpu-box", "127.0.0.1.example"} {
		p := n.Call("PUT", instances+"/a", map[string]any{"options": "m --host " + host}).Problem(t)
		assert.Equal(t, 422, p.Status)
		assert.Contains(t, p.Detail, "--host "+host)
		assert.Contains(t, p.Detail, "instance_host")
	}
	wide := NewNode(t, "--instance-host", "0.0.0.0")
	p := wide.Call("PUT", instances+"/a", map[string]any{"options": "m --host 192.0.2.7"}).Problem(t) // no machine's: RFC 5737
	assert.Equal(t, 422, p.Status)
	assert.Contains(t, p.Detail, "192.0.2.7")
	wide.empty()
}
