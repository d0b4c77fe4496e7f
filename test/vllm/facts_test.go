//go:build vllm

package vllm

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// facts are what can be seen of an instance.
type facts struct {
	words   string   // at temperature 0
	sampled string   // by a seed
	paths   []string // of its API
	metrics []string
	comms   []string // names of its processes
	argv    []string // without the socket
}

func (n *node) look(t *testing.T, i launcherapi.Instance) facts {
	t.Helper()
	f := facts{words: ask(t, i)}
	var a answer
	resp, err := post(t.Context(), i, "/v1/chat/completions", strings.Replace(question(i, `,"max_tokens":24`), `"temperature":0`, `"temperature":1,"seed":7`, 1))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&a))
	require.Len(t, a.Choices, 1)
	f.sampled = a.Choices[0].Message.Content
	require.NotEqual(t, f.words, f.sampled)

	address := n.engineAddress(i)
	require.Equal(t, "unix", harness.Network(address))
	transport := harness.EngineTransport(address)
	defer transport.CloseIdleConnections()
	engine := &http.Client{Transport: transport}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", i.PID))
	require.NoError(t, err)
	f.argv = strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
	f.argv = slices.DeleteFunc(f.argv, func(arg string) bool { return arg == address })

	var api struct{ Paths map[string]any }
	require.NoError(t, json.Unmarshal([]byte(fetch(t, engine, "http://localhost/openapi.json")), &api))
	for path := range api.Paths {
		f.paths = append(f.paths, path)
	}
	for line := range strings.Lines(fetch(t, http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d/metrics", i.Port))) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[1] == "TYPE" {
			f.metrics = append(f.metrics, fields[2])
		}
	}
	for _, p := range tree(i) {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID))
		require.NoError(t, err)
		f.comms = append(f.comms, strings.TrimSpace(string(comm)))
	}
	for _, list := range [][]string{f.paths, f.metrics, f.comms} {
		slices.Sort(list)
	}
	return f
}

func fetch(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	resp, err := client.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", body)
	return string(body)
}

// logOf is the file that an instance writes.
func (n *node) logOf(t *testing.T, id string) string {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(n.state, "logs", n.get(id).LogName))
	require.NoError(t, err)
	return string(log)
}
