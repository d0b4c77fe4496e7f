package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// llamaTranscripts are logs of build 10434 of llama-server, which ended with exit code 1. What is
// made of them stands in testdata/llamacpp-causes.golden.
var llamaTranscripts = map[string]CauseCode{
	"file-missing":         CauseModelNotFound,
	"part-missing":         CauseModelNotFound,
	"not-gguf":             CauseModelUnsupported,
	"empty-file":           CauseModelUnsupported,
	"unknown-architecture": CauseModelUnsupported,
	"file-cut":             CauseModelBroken,
	"second-part":          CauseModelBroken,
	"permission":           CauseModelBroken,
	"not-a-projector":      CauseModelBroken,
	"not-an-adapter":       CauseModelBroken,
	"unknown-flag":         CauseWrongFlag,
	"value-missing":        CauseWrongFlag,
	"value-wrong":          CauseWrongFlag,
	"no-slot-folder":       CauseWrongFlag,
	"no-device":            CauseDeviceUnavailable,
	"no-memory":            CauseNoRoomForCache,
	"socket-taken":         CausePortTaken,
}

func TestLlamaDeathsAreExplained(t *testing.T) {
	files, err := filepath.Glob("testdata/llamacpp-logs/*.log")
	require.NoError(t, err)
	require.Len(t, files, len(llamaTranscripts))
	var text strings.Builder
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".log")
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		cause := NewLlamaCpp(LlamaCppOptions{}).Diagnose(exited(1), strings.Split(string(data), "\n"))
		assert.Equal(t, llamaTranscripts[name], cause.Code, name)
		fmt.Fprintf(&text, "%s: %s\n", name, cause.Message)
	}
	golden(t, "testdata/llamacpp-causes.golden", text.String())
}

// The lines are those of llama.cpp's source, or of the loader.
func TestLlamaDeathsThatNeedAGPUAreExplained(t *testing.T) {
	for line, want := range map[string]struct {
		code    CauseCode
		message string
	}{
		"0.02.100.000 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 40960.00 MiB on device 1: cudaMalloc failed: out of memory": {CauseOutOfDeviceMemory, "GPU 1 ran out of memory: 40960.00 MiB more were wanted"},
		"ggml_vulkan: Device memory allocation of size 1073741824 failed.":                                                                 {CauseOutOfDeviceMemory, "the GPU ran out of memory"},
		"0.02.100.000 E llama_model_load: error loading model: unable to allocate CUDA0 buffer":                                            {CauseOutOfDeviceMemory, "the GPU ran out of memory"},
		"0.02.100.000 E llama_model_load: error loading model: missing tensor 'output.weight'":                                             {CauseModelBroken, "the model cannot be loaded: missing tensor 'output.weight'"},
		"llama-server: error while loading shared libraries: libcudart.so.12: cannot open shared object file":                              {CauseBrokenInstallation, "libcudart.so.12"},
		"0.00.000.001 I srv: error loading model: harmless":                                                                                {CauseExited, "the engine exited with code 1; llama-server at times loses"},
		"0.00.000.001 E srv: something of another release":                                                                                 {CauseExited, "the first error is: srv: something of another release"},
	} {
		cause := NewLlamaCpp(LlamaCppOptions{}).Diagnose(exited(1), []string{line})
		assert.Equal(t, want.code, cause.Code, line)
		assert.Contains(t, cause.Message, want.message)
	}
}

func TestLlamaDeathsBySignalAreExplained(t *testing.T) {
	for name, tt := range map[string]struct {
		exit Exit
		want CauseCode
	}{
		"its memory limit":              {Exit{Signal: int(unix.SIGKILL), OOMKilled: true}, CauseKilledForMemory},
		"somebody's signal":             {Exit{Signal: int(unix.SIGKILL)}, CauseKilled},
		"instructions that are unknown": {Exit{Signal: int(unix.SIGILL)}, CauseBrokenInstallation},
		"a crash":                       {Exit{Signal: int(unix.SIGSEGV)}, CauseKilled},
		"a program that is not there":   {exited(127), CauseProgramCannotBeRun},
	} {
		t.Run(name, func(t *testing.T) {
			cause := NewLlamaCpp(LlamaCppOptions{}).Diagnose(tt.exit, nil)
			assert.Equal(t, tt.want, cause.Code, cause.Message)
		})
	}
}
