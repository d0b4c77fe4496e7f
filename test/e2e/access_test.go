package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// The rows of the section "Access" of spec/rows.md that concern the
// control API: tokens, addresses, paths. Secrets have a file of their own, and
// that a token is compared in constant time is in package api.

// newTokenNode makes a node whose launcher asks for a token.
func newTokenNode(t *testing.T, token string) (n *Node, file string) {
	t.Helper()
	n, file = newStoppedTokenNode(t, token)
	n.Start()
	return n, file
}

// newStoppedTokenNode makes the same node, whose launcher does not run yet.
func newStoppedTokenNode(t *testing.T, token string) (n *Node, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	n = NewStoppedNode(t, "--token-file", file)
	n.Token = token
	return n, file
}

func TestWithoutTheTokenNoOperationIsDone(t *testing.T) {
	t.Parallel()
	n, _ := newTokenNode(t, "s3cret-token")
	a := n.Awake("a", On(0))
	for _, operation := range n.Document.Operations() {
		method, path, _ := strings.Cut(operation, " ")
		path = strings.ReplaceAll(path, "{instance_id}", "a")
		for name, headers := range map[string][]string{
			"no token":            nil,
			"a wrong token":       {"Authorization", "Bearer s3cret-tokem"},
			"a part of it":        {"Authorization", "Bearer s3cret"},
			"more than it":        {"Authorization", "Bearer s3cret-token2"},
			"an empty token":      {"Authorization", "Bearer "},
			"it without a scheme": {"Authorization", "s3cret-token"},
			"another scheme":      {"Authorization", "Basic s3cret-token"},
			"another header":      {"X-Api-Key", "s3cret-token"},
		} {
			got, err := send(t.Context(), n.client, method, n.URL+path+"?access_token=s3cret-token", nil, headers...)
			require.NoError(t, err)
			if path == "/health" || path == "/readyz" {
				assert.Equal(t, 200, got.Status, "probes have no token")
				continue
			}
			p := got.Problem(t)
			assert.Equal(t, 401, p.Status, "%s with %s", operation, name)
			assert.Equal(t, launcherapi.CodeUnauthorized, p.Code)
			assert.Contains(t, got.Header.Get("WWW-Authenticate"), "Bearer")
			assert.NotContains(t, string(got.Body), "s3cret")
		}
	}
	for _, path := range []string{"/openapi.json", "/openapi.yaml", "/docs", "/nothing", "/health/..", "//health", "/debug/pprof/"} {
		assert.Equal(t, 401, call(t, "GET", n.URL+path, nil).Status, path)
	}
	assert.Equal(t, 401, call(t, "DELETE", n.URL+"/health", nil).Status)
	assert.Equal(t, a.Revision, n.Get("a").Revision, "nothing has happened")
}

func TestWithTheTokenEverythingIsDone(t *testing.T) {
	t.Parallel()
	n, _ := newTokenNode(t, "s3cret-token")
	n.Awake("a", On(0))
	n.Sleep("a", 1)
	n.Wake("a")
	assert.Equal(t, 200, call(t, "GET", n.URL+instances, nil, "Authorization", "bearer s3cret-token").Status, "the scheme has no case")
	n.Delete("a")
}

func TestATokenThatIsRenewedOnDiskCountsAtOnce(t *testing.T) {
	t.Parallel()
	n, file := newTokenNode(t, "old-token")
	status := func(token string) int {
		return call(t, "GET", n.URL+instances, nil, "Authorization", "Bearer "+token).Status
	}
	require.Equal(t, 200, status("old-token"))
	renewed := file + ".new"
	require.NoError(t, os.WriteFile(renewed, []byte("new-token"), 0o600))
	require.NoError(t, os.Rename(renewed, file)) // as a mounted Secret changes
	assert.Equal(t, 401, status("old-token"))
	assert.Equal(t, 200, status("new-token"))
	require.NoError(t, os.Remove(file))
	assert.Equal(t, 503, status("new-token"), "without a token nobody is let in")
	assert.Equal(t, 503, status(""))
}

func TestPagesOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://elsewhere.example"}} {
		got := n.Call("POST", instances, Spec("m", On(0)), header...)
		assert.Equal(t, 403, got.Problem(t).Status)
		assert.Empty(t, got.Header.Get("Access-Control-Allow-Origin"))
	}
	n.empty()
}

// A page whose name resolves to this machine is no other site to its browser.
func TestWithoutATokenOtherNamesOfTheMachineAreRefused(t *testing.T) {
	t.Parallel()
	hostname, err := os.Hostname()
	require.NoError(t, err)
	status := func(n *Node, host string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.URL+instances, nil)
		require.NoError(t, err)
		req.Host = host
		req.Header.Set("Authorization", "Bearer "+n.Token)
		resp, err := n.checked().Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	n := NewNode(t)
	for _, host := range []string{"elsewhere.example", "elsewhere.example:8001", "localhost.elsewhere.example", "127.0.0.1.elsewhere.example"} {
		assert.Equal(t, 403, status(n, host), host)
	}
	for _, host := range []string{"localhost", "LOCALHOST:8001", "127.0.0.1", "[::1]:8001", "10.1.2.3", hostname} {
		assert.Equal(t, 200, status(n, host), host)
	}
	protected, _ := newTokenNode(t, "s3cret-token")
	assert.Equal(t, 200, status(protected, "elsewhere.example"), "who knows the token may call it what they like")
}

// listenersAt gives the addresses, in the kernel's hexadecimal, on which anybody
// in this network namespace listens at a port.
func listenersAt(t *testing.T, port int) []string {
	t.Helper()
	var out []string
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		for _, line := range strings.Split(string(data), "\n") {
			fields := strings.Fields(line)
			if len(fields) > 3 && fields[3] == "0A" && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) {
				out = append(out, strings.Split(fields[1], ":")[0])
			}
		}
	}
	return out
}

func TestOnlyLoopbackIsListenedOnByDefault(t *testing.T) {
	t.Parallel()
	help, err := exec.Command(bin.launcher, "serve", "--help").Output()
	require.NoError(t, err)
	assert.Regexp(t, regexp.MustCompile(`--listen .*default 127\.0\.0\.1:8001`), string(help))
	n := NewNode(t)
	i := n.Awake("a", On(0))
	const loopback = "0100007F"
	assert.Equal(t, []string{loopback}, listenersAt(t, i.Port), "an instance's public port")
	assert.Equal(t, "unix", harness.Network(engineAddress(t, i)), "the engine's own address")
	assert.NotContains(t, procFile(t, i.PID, "cmdline"), "--port")

	without := NewNode(t, "--engine-socket", "never")
	other := without.Awake("a", On(0))
	port, err := strconv.Atoi(enginePort(t, other))
	require.NoError(t, err)
	assert.Equal(t, []string{loopback}, listenersAt(t, port), "the engine's own")
	assert.NotEqual(t, other.Port, port)
}

func TestAnIDThatIsNoPlainNameIsRefusedAndNoFileIsMade(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	before := tree(t, n.State)
	for _, id := range []string{
		"..%2f..%2fetc%2fpasswd", "%2e%2e", "%2e", "..%5c..", "%2ehidden", "-rf", "_x", "a%2fb", "a%00b", "a%0ab", "a%20b", "%ff", "%c3%a4",
		"a%3fb", "a:b", "*", strings.Repeat("a", 129), "watch",
	} {
		p := n.Call("PUT", instances+"/"+id, Spec("m", On(0))).Problem(t)
		assert.Equal(t, 422, p.Status, id)
		assert.Equal(t, 422, n.Call("POST", "/v2/vllm/swap", map[string]any{"gpu_uuids": On(0), "in": map[string]any{
			"id": "../" + id, "options": "m",
		}}).Problem(t).Status, id)
		for method, path := range map[string]string{"DELETE": "", "GET": "/log", "POST": "/sleep"} {
			assert.Equal(t, 404, n.Call(method, instances+"/"+id+path, nil).Problem(t).Status, id)
		}
	}
	// Dots that a client cleans, or a server might.
	for _, path := range []string{"/..", "/../../v2/gpus", "/a/../../../health", "/a/../b"} {
		status := n.raw("PUT " + instances + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"options\":\"m\"}")
		assert.True(t, status == 404 || status == 422, "%s: %d", path, status)
	}
	n.empty()
	assert.Equal(t, before, tree(t, n.State))
	longest := strings.Repeat("a", 128)
	n.Create(longest, Spec("m", On(0)))
	n.Await(longest, "awake")
	assert.Equal(t, http.StatusOK, n.log(longest, "").Status)
}

// tree lists what is in a folder: each path with its size and the time of its
// last change.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			out = append(out, fmt.Sprintf("%s %s %d %s", path, info.Mode(), info.Size(), info.ModTime()))
		}
		return err
	}))
	return out
}
