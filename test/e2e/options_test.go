package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
