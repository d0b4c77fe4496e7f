package engine

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/engines/rank"
	"hotseat.dev/hotseat/test/helpers/patience"
)

const (
	llamaModel = "testdata/gguf/one/model.gguf"
	saveDir    = "/state/saved"
)

// llamaPlans are requests that can be honoured; what becomes of them stands in
// testdata/llamacpp-plans.golden.
var llamaPlans = []struct {
	name string
	Request
}{
	{"the model stands first", Request{Options: new(llamaModel + " -c 2048")}},
	{"the model is --model", Request{Options: new("-c 2048 --model " + llamaModel)}},
	{"the model is -m", Request{Options: new("-m " + llamaModel)}},
	{"a folder with one model", Request{Options: new("-m testdata/gguf/one")}},
	{"a folder with a model in parts", Request{Options: new("-m testdata/gguf/split")}},
	{"a folder with a model in parts in a folder", Request{Options: new("-m testdata/gguf/below")}},
	{"one of several models in a folder", Request{Options: new("-m testdata/gguf/several -hff b-Q8_0.gguf")}},
	{"a model of the store", Request{Options: new("hf://org/name -ngl 99")}},
	{"names", Request{Options: new("-m m.gguf --alias one,two -a three,four")}},
	{"an address", Request{Options: new("-m m.gguf --host 0.0.0.0 --port 8000")}},
	{"underscores", Request{Options: new("-m m.gguf --ctx_size 64 --api_key k")}},
	{"an unknown flag with its value", Request{Options: new("-m m.gguf --flag-of-tomorrow 1 --jinja")}},
	{"values that look like flags", Request{Args: []string{"-m", "m.gguf", "-n", "-1", "--chat-template", "--- {{ x }}", "--control-vector-layer-range", "1", "2"}}},
	{"several keys", Request{Options: new("-m m.gguf --api-key k1,k2 --api-key-file testdata/llamacpp-keys")}},
	{"keys of a file", Request{Options: new("-m m.gguf --api-key-file testdata/llamacpp-keys")}},
	{"the key of a variable", Request{Options: new("-m m.gguf"), Env: map[string]string{"LLAMA_API_KEY": "k1,k2"}}},
	{"a projector and a draft model count", Request{Options: new(llamaModel + " -mm testdata/gguf/split/m-00002-of-00002.gguf -md " + llamaModel)}},
	{"real GPUs", Request{Options: new(llamaModel), GPUs: gpus(2, 0), Accelerator: AcceleratorNVML, SaveDir: saveDir}},
	{"a device of real GPUs is the user's", Request{Options: new(llamaModel + " --device CUDA0"), GPUs: gpus(1), Accelerator: AcceleratorNVML}},
	{"a MIG device", Request{Options: new(llamaModel), GPUs: []GPU{mig}, Accelerator: AcceleratorNVML}},
	{"real GPUs that are not used", Request{Options: new(llamaModel + " -dev none"), GPUs: gpus(1), Accelerator: AcceleratorNVML}},
	{"simulated GPUs", Request{Options: new(llamaModel), GPUs: gpus(1), Accelerator: "simulated", SaveDir: saveDir}},
	{"variables of the launcher's own environment", Request{
		Options: new("-m m.gguf"),
		BaseEnv: []string{"PATH=/bin", "LLAMA_ARG_HOST=0.0.0.0", "LLAMA_ARG_MODELS_DIR=/m", "LLAMA_ARG_THREADS=4", "HOTSEAT_TOKEN=secret"},
	}},
	{"variables of the user", Request{Options: new("-m m.gguf"), Env: map[string]string{"LLAMA_ARG_UI": "true", "LLAMA_ARG_CACHE_IDLE_SLOTS": "true", "LLAMA_ARG_FLASH_ATTN": "on"}}},
}

func TestLlamaPlansAreThoseOfTheGoldenFile(t *testing.T) {
	var text strings.Builder
	for _, tt := range llamaPlans {
		p, err := NewLlamaCpp(LlamaCppOptions{}).Plan(tt.Request)
		require.NoError(t, err, tt.name)
		describe(&text, tt.name, p)
		fmt.Fprintf(&text, "memory %d, socket %q\n\n", p.DeviceMemory.Bytes, p.SocketArgv("/run/a/engine.sock"))
	}
	golden(t, "testdata/llamacpp-plans.golden", text.String())
}

// llamaRefusals are arguments that cannot be used; what is said about them stands in
// testdata/llamacpp-refusals.golden.
var llamaRefusals = []struct {
	name string
	args []string
}{
	{"sleep by itself", []string{"-m", "m", "--sleep-idle-seconds", "60"}},
	{"sleep by itself with underscores", []string{"-m", "m", "--sleep_idle_seconds", "60"}},
	{"other paths", []string{"-m", "m", "--api-prefix", "/x"}},
	{"files that are served", []string{"-m", "m", "--path", "/x"}},
	{"a shared port", []string{"-m", "m", "--reuse-port"}},
	{"TLS", []string{"-m", "m", "--ssl-key-file", "k"}},
	{"TLS of another release", []string{"-m", "m", "--ssl-of-tomorrow", "k"}},
	{"a router", []string{"--models-dir", "/m"}},
	{"a router of another release", []string{"-m", "m", "--models-of-tomorrow=1"}},
	{"a router that loads nothing", []string{"-m", "m", "--no-models-autoload"}},
	{"a download", []string{"-hf", "org/name"}},
	{"a download of a draft model", []string{"-m", "m", "-hfd", "org/name"}},
	{"a download from an address", []string{"-mu", "https://example.org/m.gguf"}},
	{"a download by a short name", []string{"--gpt-oss-20b-default"}},
	{"tools", []string{"-m", "m", "--tools", "all"}},
	{"an agent", []string{"-m", "m", "-ag"}},
	{"a proxy", []string{"-m", "m", "--cors-proxy"}},
	{"files of the machine", []string{"-m", "m", "--media-path", "/"}},
	{"saved slots", []string{"-m", "m", "--slot-save-path", "/x"}},
	{"no slots", []string{"-m", "m", "--no-slots"}},
	{"a version", []string{"--version"}},
	{"no log", []string{"-m", "m", "--log-disable"}},
	{"no model", []string{"-c", "64"}},
	{"two models", []string{"a.gguf", "-m", "b.gguf"}},
	{"a model that looks like a flag", []string{"-m", "-x"}},
	{"a value after =", []string{"-m", "m", "--ctx-size=64"}},
	{"a flag without its value", []string{"-m", "m", "--alias"}},
	{"a flag in place of a value", []string{"-m", "m", "--alias", "--port", "1"}},
	{"a port out of range", []string{"-m", "m", "--port", "65536"}},
	{"a context that is none", []string{"-m", "m", "-c", "much"}},
	{"a host of another machine", []string{"-m", "m", "--host", "10.1.2.3"}},
	{"a file of keys that is missing", []string{"-m", "m", "--api-key-file", "testdata/none"}},
	{"a folder with several models", []string{"-m", "testdata/gguf/several"}},
	{"a file that the folder lacks", []string{"-m", "testdata/gguf/several", "--hf-file", "c-Q2_K.gguf"}},
	{"a file of a file", []string{"-m", llamaModel, "--hf-file", "model.gguf"}},
	{"a folder without a model", []string{"-m", "testdata/gguf/none"}},
}

func TestLlamaArgumentsThatCannotBeUsedAreRefusedInWords(t *testing.T) {
	var text strings.Builder
	for _, tt := range llamaRefusals {
		e := refusedByLlamaCpp(t, Request{Args: tt.args})
		assert.Equal(t, "args", e.Field, tt.name)
		fmt.Fprintf(&text, "=== %s\n%q\n[%s] %s\n\n", tt.name, tt.args, e.Flag, e.Message)
	}
	golden(t, "testdata/llamacpp-refusals.golden", text.String())
}

func refusedByLlamaCpp(t *testing.T, r Request) *InputError {
	t.Helper()
	_, err := NewLlamaCpp(LlamaCppOptions{}).Plan(r)
	var input *InputError
	require.ErrorAs(t, err, &input)
	return input
}

func TestLlamaRequestsThatAreWrongElsewhereNameTheirField(t *testing.T) {
	env := func(name string) map[string]string { return map[string]string{name: "x"} }
	for name, tt := range map[string]struct {
		Request
		field, flag, want string
	}{
		"a rank":                   {Request{Options: new("m"), Rank: &rank.Rank{}}, "rank", "", "llama.cpp has no ranks"},
		"a GPU twice":              {Request{Options: new("m"), GPUs: gpus(1, 1)}, "gpu_uuids", "", "twice"},
		"a variable of a refusal":  {Request{Options: new("m"), Env: env("LLAMA_ARG_MODELS_DIR")}, "env_vars.LLAMA_ARG_MODELS_DIR", "--models-dir", "cannot be set: the launcher chooses which models run"},
		"a variable that is read":  {Request{Options: new("m"), Env: env("LLAMA_ARG_CTX_SIZE")}, "env_vars.LLAMA_ARG_CTX_SIZE", "--ctx-size", "give --ctx-size in the arguments"},
		"a variable of a download": {Request{Options: new("m"), Env: env("LLAMA_ARG_HF_REPO")}, "env_vars.LLAMA_ARG_HF_REPO", "--hf-repo", "store"},
		"a variable of the host":   {Request{Options: new("m"), Env: env("LLAMA_ARG_HOST")}, "env_vars.LLAMA_ARG_HOST", "--host", "give --host"},
	} {
		t.Run(name, func(t *testing.T) {
			e := refusedByLlamaCpp(t, tt.Request)
			assert.Equal(t, tt.field, e.Field)
			assert.Equal(t, tt.flag, e.Flag)
			assert.Contains(t, e.Message, tt.want)
		})
	}
}

func TestLlamaReadsItsModelInAFolderOfTheStore(t *testing.T) {
	l := NewLlamaCpp(LlamaCppOptions{})
	p, err := l.Plan(Request{Options: new("hf://org/name -c 64"), GPUs: gpus(0), Accelerator: AcceleratorNVML})
	require.NoError(t, err)
	assert.Equal(t, "hf://org/name", p.Model)
	before := p.DeviceMemory

	require.NoError(t, p.ReadFrom("testdata/gguf/split"))
	assert.Equal(t, before.Bytes+3000+64*2*2*2*32, p.DeviceMemory.Bytes, "both parts, and 64 tokens of 2 layers with keys and values of 2 heads with 16 numbers of 2 bytes")
	argv := p.SocketArgv("/run/a/engine.sock")
	assert.Equal(t, []string{"--model", "testdata/gguf/split/m-00001-of-00002.gguf", "--alias", "hf://org/name"}, argv[:4])

	running, err := l.Running(append([]string{"llama-server"}, argv...), p.Env())
	require.NoError(t, err)
	assert.Equal(t, []string{"hf://org/name"}, running.ServedNames)
	assert.Equal(t, p.DeviceMemory, running.DeviceMemory)

	for _, folder := range []string{"testdata/gguf/several", "testdata/gguf/none", "testdata/gguf/missing"} {
		var input *InputError
		require.ErrorAs(t, p.ReadFrom(folder), &input, folder)
		assert.Equal(t, "options", input.Field)
		assert.Contains(t, input.Message, folder)
	}
	assert.Equal(t, "testdata/gguf/split", p.Folder)
}

func TestLlamaRunningIsReadFromItsProcess(t *testing.T) {
	l := NewLlamaCpp(LlamaCppOptions{})
	for _, tt := range llamaPlans {
		t.Run(tt.name, func(t *testing.T) {
			plan, err := l.Plan(tt.Request)
			require.NoError(t, err)
			for _, argv := range [][]string{plan.Argv(testHost, testPort), plan.SocketArgv("/run/a/engine.sock")} {
				got, err := l.Running(append([]string{"/usr/bin/llama-server"}, argv...), plan.Env())
				require.NoError(t, err)
				assert.Equal(t, plan.ServedNames, got.ServedNames)
				assert.Equal(t, plan.APIKey, got.APIKey)
				assert.Equal(t, plan.DeviceMemory, got.DeviceMemory)
				assert.Equal(t, plan.KeepAlive, got.KeepAlive)
				assert.Equal(t, len(tt.GPUs), len(got.Devices))
				assert.Equal(t, argv[1], got.Model)
				if argv[6] == "--port" {
					assert.Equal(t, testPort, got.Port)
				} else {
					assert.Equal(t, "/run/a/engine.sock", got.Socket)
					assert.Zero(t, got.Port)
				}

				again, err := l.Plan(Request{Args: got.Args, GPUs: tt.GPUs, Env: tt.Env, Accelerator: tt.Accelerator, SaveDir: tt.SaveDir})
				require.NoError(t, err, "%q", got.Args)
				assert.Equal(t, plan.Argv(testHost, testPort), again.Argv(testHost, testPort))
			}
		})
	}
}

func TestLlamaTakesNoOtherProcessForItsOwn(t *testing.T) {
	l := NewLlamaCpp(LlamaCppOptions{})
	for _, argv := range [][]string{
		nil, {"sleep", "60"}, {"llama-server", "--model", "m"}, {"llama-server", "--model", "m", "--alias", "a", "--host", "h", "--port"},
		{"llama-server", "--model", "m", "--alias", "a", "--host", "h", "--port", "x", "--slots", "--metrics"},
		{"llama-server", "--model", "m", "--alias", "a", "--host", "h", "--jinja", "--metrics"},
	} {
		_, err := l.Running(argv, nil)
		assert.Error(t, err, "%q", argv)
	}
}

func TestLlamaFlagsThatTheLauncherKnowsAreThoseOfTheTable(t *testing.T) {
	require.Greater(t, len(llamaFlags), 300)
	for name := range llamaReaders {
		assert.Equal(t, 1, llamaFlags[name].values, name)
	}
	for name := range llamaRefused {
		if name != "--cors-proxy" { // of another release
			assert.Contains(t, llamaFlags, name)
		}
	}
	for short, long := range map[string]string{"-m": "--model", "-hf": "--hf-repo", "-nkvo": "--no-kv-offload", "-hfrd": "--hf-repo-draft", "-c": "--ctx-size", "-mm": "--mmproj"} {
		assert.Equal(t, long, llamaFlags[short].name)
	}
}

func TestLlamaModelThatIsAPipeDoesNotHoldTheLauncher(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "model.gguf")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	planned := make(chan error, 1)
	go func() {
		_, err := NewLlamaCpp(LlamaCppOptions{}).Plan(Request{Args: []string{"-m", pipe}})
		planned <- err
	}()
	select {
	case err := <-planned:
		require.NoError(t, err)
	case <-time.After(patience.Wait()):
		t.Fatal("Plan still reads the pipe")
	}
}
