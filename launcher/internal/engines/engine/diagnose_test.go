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

func exited(code int) Exit { return Exit{Code: &code} }

func logOf(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/logs", name+".log"))
	require.NoError(t, err)
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

// transcripts are logs of vLLM, of 0.30.0 where their names say no other, most of them without their stack frames,
// and the exit codes that went with them. What is made of them stands in
// testdata/causes.golden.
var transcripts = []struct {
	log  string
	exit Exit
	want CauseCode
}{
	{"unknown-flag", exited(2), CauseWrongFlag},
	{"bad-dtype", exited(2), CauseWrongFlag},
	{"enable-sleep-mode", exited(1), CauseSleepModeUnsupported},
	{"max-model-len", exited(1), CauseMaxModelLenTooLong},
	{"model-missing", exited(1), CauseModelNotFound},
	{"model-missing-relative", exited(1), CauseModelNotFound},
	{"model-dir-empty", exited(1), CauseModelNotFound},
	{"config-malformed", exited(1), CauseModelBroken},
	{"unknown-architecture", exited(1), CauseModelUnsupported},
	{"tokenizer-missing", exited(1), CauseModelBroken},
	{"weights-cut", exited(1), CauseModelBroken},
	{"weights-missing", exited(1), CauseModelBroken},
	{"kv-too-large", exited(1), CauseOutOfHostMemory},
	{"port-taken", exited(1), CausePortTaken},
	{"host-unresolvable", exited(1), CauseExited},
	{"fractional-kv", exited(1), CauseExited},
	{"no-compiler", exited(0), CauseBrokenInstallation},
	{"no-platform-0.20.2", exited(1), CauseDeviceUnavailable},
	{"omp-bind-0.20.2", exited(1), CauseEngineCoreDied},
	{"bad-dtype-0.18.1", exited(2), CauseWrongFlag},
	{"max-model-len-0.18.1", exited(1), CauseMaxModelLenTooLong},
	{"model-missing-0.18.1", exited(1), CauseModelNotFound},
	{"no-tcmalloc-0.18.1", exited(1), CauseBrokenInstallation},
	{"bad-dtype-0.22.1", exited(2), CauseWrongFlag},
	{"max-model-len-0.22.1", exited(1), CauseMaxModelLenTooLong},
	{"model-missing-0.22.1", exited(1), CauseModelNotFound},
	{"weights-missing-0.22.1", exited(1), CauseModelBroken},
	{"bad-dtype-0.32.0", exited(2), CauseWrongFlag},
	{"max-model-len-0.32.0", exited(1), CauseMaxModelLenTooLong},
	{"model-missing-0.32.0", exited(1), CauseModelNotFound},
	{"weights-missing-0.32.0", exited(1), CauseModelBroken},
	{"kill9-enginecore", exited(0), CauseEngineCoreDied},
	{"kill9-enginecore-asleep", exited(0), CauseEngineCoreDied},
	{"kill9-worker", exited(0), CauseEngineCoreDied},
}

func TestRealLogsAreUnderstood(t *testing.T) {
	var text strings.Builder
	for _, tt := range transcripts {
		cause := NewVLLM(VLLMOptions{}).Diagnose(tt.exit, logOf(t, tt.log))
		assert.Equal(t, tt.want, cause.Code, "%s: %s", tt.log, cause.Message)
		fmt.Fprintf(&text, "=== %s\n[%s] %s\n\n", tt.log, cause.Code, cause.Message)
	}
	golden(t, "testdata/causes.golden", text.String())
}

// The lines here are what vLLM and what it is built on log where there is a GPU
// or a network, which the transcripts had not.
func TestLinesThatNeedAGPUOrANetworkAreUnderstood(t *testing.T) {
	const worker = "(VllmWorker rank=1 pid=194255) ERROR 05-08 14:46:12 [multiproc_executor.py:435] "
	tests := []struct {
		line string
		code CauseCode
		want string
	}{
		{
			worker + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 270.00 MiB. GPU 1 has a total capacity of 21.98 GiB of which 156.94 MiB is free. Including non-PyTorch memory, this process has 21.80 GiB memory in use.",
			CauseOutOfDeviceMemory, "270.00 MiB more were wanted, with 156.94 MiB of 21.98 GiB free",
		},
		{worker + "RuntimeError: CUDA error: out of memory", CauseOutOfDeviceMemory, "the GPU ran out of memory"},
		{
			"(EngineCore_DP0 pid=17374) ERROR 09-28 15:47:24 [core.py:718] ValueError: Free memory on device (3.22/4.0 GiB) on startup is less than desired GPU memory utilization (0.9, 3.6 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
			CauseDeviceMemoryTaken, "the GPU has 3.22 of its 4.0 GiB free, but --gpu-memory-utilization 0.9 asks for 3.6 GiB",
		},
		{
			worker + "ValueError: Free memory on device cuda:0 (111.99/139.8 GiB) on startup is less than desired GPU memory utilization (0.95, 132.81 GiB). Decrease",
			CauseDeviceMemoryTaken, "the GPU cuda:0 has 111.99 of its 139.8 GiB free",
		},
		{
			worker + "ValueError: To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed, which is larger than the available KV cache memory (3.2 GiB). Based on",
			CauseNoRoomForCache, "one request of --max-model-len 131072 needs 16.0 GiB of KV cache, but only 3.2 GiB are left",
		},
		{worker + "ValueError: No available memory for the cache blocks. Try increasing", CauseNoRoomForCache, "raise --gpu-memory-utilization"},
		{"(APIServer pid=1) Access to model org/secret is restricted. You must have access to it and be authenticated to access it. Please log in.", CauseGatedModel, "the model org/secret is gated"},
		{"(APIServer pid=1) OSError: You are trying to access a gated repo.", CauseGatedModel, "HF_TOKEN"},
		{"(APIServer pid=1) huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. (Request ID: x)", CauseModelNotFound, "the hub has no such model"},
		{"(APIServer pid=1) If you are trying to access a private or gated repo, make sure you are authenticated.", CauseExited, "exited with code 1"},
		{"(APIServer pid=1) OSError: no/such is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'", CauseModelNotFound, "there is no model no/such"},
		{"(APIServer pid=1) OSError: We couldn't connect to 'https://huggingface.co' to load the files", CauseHubUnreachable, "https://huggingface.co cannot be reached"},
		{"(APIServer pid=1) ValueError: The repository org/x contains custom code which must be executed to correctly load the model.", CauseModelUnsupported, "--trust-remote-code"},
		{"(APIServer pid=1)   Value error, The checkpoint you are trying to load has model type `qwen9` but Transformers does not recognize this architecture.", CauseModelUnsupported, "model type qwen9"},
		{"ValueError: invalid literal for int() with base 10: 'MIG-377e0049-554c-540b-93c6-d0976f8426cb'", CauseMIGUnsupported, "MIG-377e0049-554c-540b-93c6-d0976f8426cb"},
		{"(APIServer pid=1) RuntimeError: Failed to infer device type, please set the environment variable", CauseDeviceUnavailable, "nvidia-smi"},
		{worker + "RuntimeError: No CUDA GPUs are available", CauseDeviceUnavailable, "(No CUDA GPUs are available)"},
		{"(Worker pid=1) OSError: [Errno 28] No space left on device: '/cache/blobs/x'", CauseDiskFull, "make room"},
		{"MemoryError", CauseOutOfHostMemory, "the host ran out of memory"},
		{"ModuleNotFoundError: No module named 'vllm'", CauseBrokenInstallation, "(No module named 'vllm')"},
		{"(EngineCore pid=2) ERROR 11-21 09:31:37 [multiproc_executor.py:314] Worker proc VllmWorker-0 died unexpectedly (exit code: 1), shutting down executor.", CauseEngineCoreDied, "Worker proc VllmWorker-0 died unexpectedly (exit code: 1)"},
	}
	for _, tt := range tests {
		t.Run(tt.line, func(t *testing.T) {
			cause := NewVLLM(VLLMOptions{}).Diagnose(exited(1), []string{"before", tt.line, "after"})
			assert.Equal(t, tt.code, cause.Code, cause.Message)
			assert.Contains(t, cause.Message, tt.want)
		})
	}
}

func TestTheExitSaysWhatTheLogDoesNot(t *testing.T) {
	tests := []struct {
		name string
		exit Exit
		tail []string
		code CauseCode
		want string
	}{
		{"the kernel wanted memory", Exit{Signal: int(unix.SIGKILL), OOMKilled: true}, nil, CauseKilledForMemory, "reached its memory limit"},
		{"the kernel wanted a worker's memory", Exit{Code: new(0), OOMKilled: true}, logOf(t, "kill9-worker"), CauseKilledForMemory, "reached its memory limit"},
		{"a kill from outside", Exit{Signal: int(unix.SIGKILL)}, logOf(t, "port-taken"), CauseKilled, "another process killed the engine with SIGKILL: possibly"},
		{"an end from outside", Exit{Signal: int(unix.SIGTERM)}, nil, CauseKilled, "killed the engine with SIGTERM"},
		{"a crash", Exit{Signal: int(unix.SIGSEGV)}, []string{"!!!!!!! Segfault encountered !!!!!!!"}, CauseKilled, "crashed with SIGSEGV"},
		{"an abort with a reason", Exit{Signal: int(unix.SIGABRT)}, []string{"RuntimeError: CUDA error: out of memory"}, CauseOutOfDeviceMemory, "out of memory"},
		{"a program that is missing", exited(127), []string{"sh: 1: exec: vllm: not found"}, CauseProgramCannotBeRun, "exit code 127"},
		{"a quiet end", exited(0), nil, CauseExited, "the engine exited with code 0"},
		{"an end that nobody saw", Exit{}, nil, CauseExited, "unknown exit status"},
		{"an unknown error", exited(1), []string{"ValueError: first", "(APIServer pid=1) KeyError: 'second'", "bye"}, CauseExited, "the engine exited with code 1; the first error is: ValueError: first"},
		{
			"an unknown error behind the noise of other processes", exited(1),
			[]string{"(Worker pid=2) ERROR 11-21 09:28:42 [x.py:1] ValueError: real", "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above."},
			CauseEngineCoreDied, "the first error is: ValueError: real",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cause := NewVLLM(VLLMOptions{}).Diagnose(tt.exit, tt.tail)
			assert.Equal(t, tt.code, cause.Code, cause.Message)
			assert.Contains(t, cause.Message, tt.want)
		})
	}
}

func TestTheFirstErrorOfTheInnermostProcessIsTheRoot(t *testing.T) {
	tail := []string{
		"(APIServer pid=1) ERROR 11-21 09:28:40 [x.py:1] ValueError: of the API server, which noticed something first",
		"(EngineCore_DP0 pid=2) ERROR 11-21 09:28:41 [core.py:1] KeyError: of EngineCore",
		"(VllmWorker rank=0 pid=3) ERROR 11-21 09:28:42 [x.py:1] IndexError: the root",
		"(VllmWorker rank=0 pid=3) ERROR 11-21 09:28:42 [x.py:1] During handling of the above exception, another exception occurred:",
		"(VllmWorker rank=0 pid=3) ERROR 11-21 09:28:43 [x.py:1] AttributeError: 'NoneType' object has no attribute 'shutdown'",
		"(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.",
	}
	cause := NewVLLM(VLLMOptions{}).Diagnose(exited(1), tail)
	assert.Equal(t, Cause{CauseEngineCoreDied, "a process of the engine died: see the log above its last stack trace; the first error is: IndexError: the root"}, cause)
}

func TestAPartThatIsCompiledAndCannotBeLoadedComesBeforeWhatFollowsFromIt(t *testing.T) {
	const echo = "(EngineCore_DP0 pid=2) ERROR 11-21 09:28:41 [core.py:1] AttributeError: 'NoneType' object has no attribute 'ensure_kv_transfer_shutdown'"
	for line, want := range map[string]string{
		"WARNING 11-22 10:00:00 [_custom_ops.py:20] Failed to import from vllm._C with ImportError(\"/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /v/vllm/_C.abi3.so)\")": "vllm._C, the part of vLLM that is compiled, needs GLIBCXX_3.4.32, which /lib/x86_64-linux-gnu/libstdc++.so.6 does not have",
		"WARNING 11-22 10:00:00 [interface.py:20] Failed to import from vllm._C: ImportError('/v/vllm/_C.abi3.so: undefined symbol: _ZNK3c105Error4whatEv')":                                                       "vllm._C, the part of vLLM that is compiled, cannot be loaded (undefined symbol: _ZNK3c105Error4whatEv)",
		"WARNING 11-22 10:00:00 [cuda.py:20] Failed to import from vllm._C_stable_libtorch ImportError('libcudart.so.13: cannot open shared object file: No such file or directory')":                              "(libcudart.so.13: cannot open shared object file)",
	} {
		cause := NewVLLM(VLLMOptions{}).Diagnose(exited(1), []string{line, echo})
		assert.Equal(t, CauseBrokenInstallation, cause.Code, line)
		assert.Contains(t, cause.Message, want)
		cause = NewVLLM(VLLMOptions{}).Diagnose(exited(2), []string{line, "vllm serve: error: unrecognized arguments: --no-such-flag"})
		assert.Equal(t, CauseWrongFlag, cause.Code, "a known cause comes first")
	}
}

func TestWhatIsLoggedAsHarmlessIsNoCause(t *testing.T) {
	quotes := []string{
		"(APIServer pid=1) INFO 11-21 09:26:08 [api_utils.py:286] non-default args: {'chat_template': 'CUDA out of memory'}",
		`(APIServer pid=1) INFO:     127.0.0.1:35598 - "GET /CUDA%20error: out of memory HTTP/1.1" 404 Not Found`,
		"(APIServer pid=1) WARNING 11-21 09:26:08 [x.py:1] retrying: [Errno 98] Address already in use",
		"\x1b[0;36m(Worker pid=1)\x1b[0;0m DEBUG 11-21 09:26:08 [x.py:1] No CUDA GPUs are available",
	}
	cause := NewVLLM(VLLMOptions{}).Diagnose(exited(1), quotes)
	assert.Equal(t, Cause{CauseExited, "the engine exited with code 1"}, cause)

	colored := "\x1b[0;36m(Worker pid=1)\x1b[0;0m ERROR 11-21 09:26:08 [x.py:1] RuntimeError: No CUDA GPUs are available\r\n"
	assert.Equal(t, CauseDeviceUnavailable, NewVLLM(VLLMOptions{}).Diagnose(exited(1), []string{colored}).Code)
}

func TestAMessageStaysShort(t *testing.T) {
	line := "ModuleNotFoundError: " + strings.Repeat("ü", 10_000)
	assert.Less(t, len(NewVLLM(VLLMOptions{}).Diagnose(exited(1), []string{line}).Message), 1000)
	line = "KeyError: " + strings.Repeat("x", 10_000)
	assert.Less(t, len(NewVLLM(VLLMOptions{}).Diagnose(exited(1), []string{line}).Message), 1000)
}

func FuzzDiagnose(f *testing.F) {
	for _, tt := range transcripts {
		data, err := os.ReadFile(filepath.Join("testdata/logs", tt.log+".log"))
		require.NoError(f, err)
		f.Add(1, 0, string(data))
	}
	engine := NewVLLM(VLLMOptions{})
	f.Fuzz(func(t *testing.T, code, signal int, log string) {
		for _, exit := range []Exit{{Code: &code}, {Signal: signal}} {
			cause := engine.Diagnose(exit, strings.Split(log, "\n"))
			assert.NotEmpty(t, cause.Code)
			assert.NotEmpty(t, cause.Message)
			assert.Less(t, len(cause.Message), 4000)
		}
	})
}
