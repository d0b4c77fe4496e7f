//go:build clients

package clients

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/patience"
)

const catalogue = `models:
- {name: a, options: a --served-model-name a, gpus: 1}
- {name: org/b, options: org/b --served-model-name org/b, gpus: 1}
- {name: embed, options: embed --served-model-name embed --runner pooling, gpus: 1}
`

// frontDoor starts a launcher with models that take turns on one simulated GPU, and returns
// the base URL for clients.
func frontDoor(t *testing.T) string {
	t.Helper()
	bin, state := t.TempDir(), t.TempDir()
	require.NoError(t, harness.Build(t.Context(), "../..", bin, nil, "launcher/cmd/launcher", "test/enginesim"))
	file := filepath.Join(state, "launcher.yaml")
	require.NoError(t, os.WriteFile(file, []byte(catalogue), 0o600))
	api, err := harness.FreeAddress()
	require.NoError(t, err)
	door, err := harness.FreeAddress()
	require.NoError(t, err)
	cmd := exec.Command(filepath.Join(bin, "launcher"), "serve", "--config", file, "--listen", api, "--front-door", door,
		"--gpus", "simulated:1", "--vllm", filepath.Join(bin, "enginesim"), "--state-dir", filepath.Join(state, "state"))
	cmd.Env = append(os.Environ(), "HOTSEAT_SIMGPU_DIR="+filepath.Join(state, "simgpu"))
	log, err := os.Create(filepath.Join(state, "log"))
	require.NoError(t, err)
	defer log.Close()
	program, err := harness.Start(cmd, log)
	require.NoError(t, err)
	t.Cleanup(func() {
		program.Signal(syscall.SIGTERM)
		assert.NoError(t, program.Wait(patience.Wait()))
	})
	ctx, stop := context.WithTimeout(t.Context(), patience.Wait())
	defer stop()
	require.NoError(t, program.AwaitServing(ctx, api))
	return fmt.Sprintf("http://%s/v1", door)
}

func TestOfficialClientsAskModelsThatSwap(t *testing.T) {
	python, err := filepath.Abs(filepath.Join(os.Getenv("HOTSEAT_CACHE"), "clients/bin/python"))
	require.NoError(t, err)
	for name, command := range map[string][]string{"Python": {python, "chat.py"}, "Ollama": {python, "ask_ollama.py"}, "Anthropic": {python, "ask_anthropic.py"}, "JavaScript": {"node", "chat.mjs"}} {
		t.Run(name, func(t *testing.T) {
			url := frontDoor(t)
			ctx, stop := context.WithTimeout(t.Context(), patience.Wait()+time.Minute)
			defer stop()
			out, err := exec.CommandContext(ctx, command[0], append(command[1:], url, "a", "org/b")...).CombinedOutput()
			assert.NoError(t, err, "%s", out)
		})
	}
}
