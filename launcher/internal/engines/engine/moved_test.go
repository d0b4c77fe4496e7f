package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// refusedFlags would change how a port or a path is read.
var refusedFlags = []string{
	"--root-path /v1", "--middleware a.b", "--uds /s", "--headless", "--grpc", "--nnodes 2", "--data-parallel-multi-port-external-lb",
	"--ssl-keyfile k", "--ssl-certfile c", "--ssl-ca-certs c", "--ssl-cert-reqs 1", "--ssl-ciphers x", "--enable-ssl-refresh",
}

// passedFlags are the other flags of vLLM 0.30.0 that are about its HTTP server
// or about ports; see decision 0015.
var passedFlags = []string{
	"--api-server-count 2", "--data-parallel-rpc-port 5000", "--data-parallel-address 127.0.0.1", "--data-parallel-supervisor-port 9256",
	"--dp-supervisor-probe-interval-s 1", "--dp-supervisor-probe-timeout-s 1", "--dp-supervisor-probe-failure-threshold 1",
	"--data-parallel-hybrid-lb", "--data-parallel-external-lb", "--data-parallel-start-rank 0", "--master-addr 127.0.0.1", "--master-port 5001", "--node-rank 0",
	"--uvicorn-log-level info", "--disable-uvicorn-access-log", "--disable-access-log-for-endpoints /health", "--log-config-file l.json",
	"--allow-credentials", `--allowed-origins ["*"]`, `--allowed-methods ["*"]`, `--allowed-headers ["*"]`,
	"--api-key k", "--enable-request-id-headers", "--disable-fastapi-docs", "--enable-offline-docs",
	"--h11-max-incomplete-event-size 1", "--h11-max-header-count 1", "--sse-keep-alive-interval 1",
	"--enable-tokenizer-info-endpoint", "--enable-server-load-tracking", "--enable-scale-out", "--tokens-only", "--enable-elastic-ep",
	"--tool-server demo", "--no-enable-ssl-refresh",
}

// spellings are the ways in which vLLM takes a flag and its value.
func spellings(flag, value string) (all [][]string) {
	for _, name := range []string{flag, "--" + strings.ReplaceAll(flag[2:], "-", "_"), flag[:len(flag)-1]} {
		if value == "" {
			all = append(all, []string{name})
		} else {
			all = append(all, []string{name, value}, []string{name + "=" + value})
		}
	}
	return all
}

func TestNoSpellingOfAFlagMovesAPortOrAPath(t *testing.T) {
	for _, written := range refusedFlags {
		flag, value, _ := strings.Cut(written, " ")
		for _, words := range spellings(flag, value) {
			e := refused(t, Request{Args: append([]string{"m"}, words...)})
			assert.Equal(t, flag, e.Flag, "%q", words)
			assert.Contains(t, e.Message, flag, "%q", words)
		}
		for _, key := range []string{flag[2:], strings.ReplaceAll(flag[2:], "-", "_"), flag[2 : len(flag)-1]} {
			path := filepath.Join(t.TempDir(), "c.yaml")
			if value == "" {
				value = "true"
			}
			require.NoError(t, os.WriteFile(path, []byte("dtype: auto\n"+key+": "+value+"\n"), 0o600))
			e := refused(t, Request{Args: []string{"m", "--config", path}})
			assert.Equal(t, flag, e.Flag, "%s in a file", key)
			assert.Contains(t, e.Message, path)
		}
	}
}

func TestFlagsThatMoveNothingPass(t *testing.T) {
	for _, written := range passedFlags {
		flag, _, _ := strings.Cut(written, " ")
		assert.Contains(t, vllmFlags, flag, "vLLM has no such flag")
		p, err := NewVLLM(VLLMOptions{}).Plan(Request{Args: append([]string{"m"}, strings.Fields(written)...)})
		require.NoError(t, err, written)
		assert.Subset(t, p.Argv(testHost, testPort), strings.Fields(written))
	}
}

func TestAMarkAtItsBeginHidesNoKeyOfAConfigurationFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(path, []byte("\ufeffport: 8123\ndtype: auto\n"), 0o600))
	p, err := NewVLLM(VLLMOptions{}).Plan(Request{Args: []string{"m", "--config", path}})
	require.NoError(t, err)
	assert.Equal(t, 8123, p.PublicPort)
	require.NoError(t, os.WriteFile(path, []byte("\ufeffroot-path: /v1\n"), 0o600))
	assert.Equal(t, "--root-path", refused(t, Request{Args: []string{"m", "--config", path}}).Flag)
}

func TestALineBreakThatOnlyVLLMSeesHidesNoKeyOfAConfigurationFile(t *testing.T) {
	for _, end := range []string{"\u0085", "\u2028", "\u2029"} {
		path := filepath.Join(t.TempDir(), "c.yaml")
		require.NoError(t, os.WriteFile(path, []byte("chat-template: |\n  {{ x }}"+end+"root-path: /v1\n"), 0o600))
		assert.Contains(t, refused(t, Request{Args: []string{"m", "--config", path}}).Message, "start of a new line")
	}
}
