package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfigurationOfLlamaSwapIsImported(t *testing.T) {
	const file = "models:\n  a:\n    cmd: llama-server -m a.gguf --port ${PORT}\n    proxy: http://x\n"
	const made = "models:\n- name: a\n  engine: llamacpp\n  args:\n  - -m\n  - a.gguf\n"
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	r := call(t, "import", "llama-swap", path)
	require.Equal(t, exitOK, r.code)
	require.Equal(t, made, r.out)
	require.Equal(t, "models.a.proxy: left out: the launcher knows where its engines listen\n", r.err)

	var out, errs bytes.Buffer
	require.Equal(t, exitOK, (&cli{in: strings.NewReader(file), out: &out, err: &errs}).run(t.Context(), []string{"import", "llama-swap", "-"}))
	require.Equal(t, made, out.String())

	require.NoError(t, os.WriteFile(path, []byte("listen: x\n"), 0o600))
	r = call(t, "import", "llama-swap", path)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, path+": this is no configuration of llama-swap: it has no mapping of models")
	r = call(t, "import", "llama-swap", path+".none")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "cannot read the configuration")
}
