package compiled

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheEngineIsKnownByWhatIsInstalledWithItsPython(t *testing.T) {
	prefix := t.TempDir()
	for _, name := range []string{"lib/python3.12/site-packages/vllm-0.30.0.dist-info", "lib/python3.12/site-packages/torch-2.13.0+cu130.dist-info", "lib/python3.12/site-packages/numpy-2.0.dist-info", "local/lib/python3.12/dist-packages/triton-3.7.1.dist-info"} {
		require.NoError(t, os.MkdirAll(filepath.Join(prefix, name), 0o755))
	}
	python := filepath.Join(prefix, "bin", "python3")
	k := KindOf("/bin/vllm", python, []string{"L4", "H100", "L4"})
	assert.Equal(t, "torch 2.13.0+cu130, triton 3.7.1, vllm 0.30.0", k.Engine)
	assert.Equal(t, []string{"H100", "L4"}, k.GPUs)
	assert.Equal(t, python, k.Python)
	assert.NotEmpty(t, k.CPU)

	require.NoError(t, os.Rename(filepath.Join(prefix, "lib/python3.12/site-packages/vllm-0.30.0.dist-info"), filepath.Join(prefix, "lib/python3.12/site-packages/vllm-0.31.0.dist-info")))
	assert.NotEqual(t, keyOf(k), keyOf(KindOf("/bin/vllm", python, []string{"L4", "H100"})))
	assert.NotEqual(t, keyOf(k), keyOf(KindOf("/bin/vllm", python, []string{"H100"})))
}

func TestAnEngineThatIsNoPythonIsKnownByItsFile(t *testing.T) {
	program := filepath.Join(t.TempDir(), "engine")
	require.NoError(t, os.WriteFile(program, []byte("#!"), 0o755))
	assert.Regexp(t, "engine, 2 bytes of 20", KindOf(program, "", nil).Engine)
	assert.Equal(t, "/nowhere", KindOf("/nowhere", "", nil).Engine)
}

func TestTheProcessorIsThatOfTheFirstCore(t *testing.T) {
	of := func(text string) string { return cpuOf(bufio.NewScanner(strings.NewReader(text))) }
	first := of("processor\t: 0\nmodel name\t: EPYC\nflags\t\t: b a\n\nprocessor\t: 1\nmodel name\t: other\n")
	assert.Contains(t, first, ", EPYC, features ")
	assert.Equal(t, first, of("model name : EPYC\nflags : a b\n"))
	assert.NotEqual(t, first, of("model name : EPYC\nflags : a b c\n"))
	assert.Contains(t, of("CPU part\t: 0xd0c\nFeatures\t: fp\n"), "0xd0c")
}
