package engine

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The address that the launcher gives in these tests.
const (
	testHost = "127.0.0.1"
	testPort = 40001
)

// gpus makes whole GPUs with these indices.
func gpus(indices ...int) []GPU {
	var list []GPU
	for _, i := range indices {
		list = append(list, GPU{UUID: fmt.Sprintf("GPU-0000000%d", i), Index: i})
	}
	return list
}

var mig = GPU{UUID: "MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f", MIG: true}

// plans are requests that can be honoured; what becomes of them stands in
// testdata/plans.golden.
var plans = []struct {
	name string
	Request
}{
	// The model.
	{"the model stands first", Request{Options: new("org/model --dtype auto")}},
	{"--model becomes the argument that vLLM wants", Request{Options: new("--model org/model --port 8000")}},
	{"--model=X does too", Request{Options: new("--dtype auto --model=org/model")}},
	{"the model follows a flag that takes no value", Request{Options: new("--enforce-eager org/model --seed 1")}},
	{"the model follows a flag that takes one value", Request{Options: new("-tp 1 org/model")}},
	{"the model follows an unknown flag with =", Request{Options: new("--flag-of-tomorrow=1 org/model")}},
	{"no model at all is vLLM's default", Request{Options: new("")}},
	{"an unknown flag keeps the values that follow it", Request{Options: new("org/model --flag-of-tomorrow a b --seed 1")}},

	// The address.
	{"the user's port becomes the public one", Request{Options: new("org/model --port 8000")}},
	{"of several ports the last counts", Request{Options: new("org/model --port=8000 --port 9000")}},
	{"port 0 leaves the choice to the launcher", Request{Options: new("org/model --port 0")}},
	{"a host that means everywhere is replaced", Request{Options: new("org/model --host 0.0.0.0 --port 8000")}},
	{"IPv6 loopback is honoured", Request{Options: new("org/model --host=::1")}},

	// The arguments.
	{"quoted JSON stays one argument", Request{Options: new(`org/model --hf-overrides '{"a b": "c d"}' --chat-template "a \"b\" c"`)}},
	{"args are taken as they are", Request{Args: []string{"org/model", "--chat-template", "{{ 'a' }} --port 9", "--seed", "-1"}}},
	{"dotted keys, -O and -cc pass", Request{Options: new("org/model -O3 -cc.mode 3 --compilation-config.pass_config.fuse_norm_quant true --override-generation-config.temperature=0.5")}},
	{"an empty argument stays", Request{Args: []string{"org/model", "--chat-template", ""}}},
	{"served names are read", Request{Options: new("org/model --served-model-name a b c --seed 1")}},
	{"underscores do for dashes", Request{Options: new("org/model --served_model_name=a --tensor_parallel_size 2 --gpu_memory_utilization .5")}},
	{"of several served names the last flag counts", Request{Options: new("org/model --served-model-name a b --served-model-name c")}},
	{"the flags of parallelism are read", Request{Options: new("org/model -tp 2 -pp=3 -pcp 1 -dp 4 -dpl 2")}},
	{"all ranks are local by default", Request{Options: new("org/model -dp 4")}},
	{"a rank of its own is one", Request{Options: new("org/model -dp 4 --data-parallel-rank 1")}},
	{"one node is no multi-node setup", Request{Options: new("org/model --nnodes 1 -n1")}},
	{"an API key is read", Request{Options: new("org/model --api-key k1 k2")}},

	// The configuration file.
	{"the configuration file is read", Request{Options: new("--config testdata/config/full.yaml")}},
	{"the command line wins over the file", Request{Options: new("org/model -tp 1 --port 9000 --served-model-name mine --config testdata/config/full.yaml")}},
	{"--config=FILE is given so that vLLM sees it", Request{Options: new("org/model --config=testdata/config/nomodel.yml")} /* an alias, a key, no sleep mode */},

	// Sleep mode.
	{"sleep mode is on for real GPUs", Request{Options: new("org/model"), Accelerator: AcceleratorNVML}},
	{"sleep mode is off for simulated GPUs", Request{Options: new("org/model"), Accelerator: "simulated"}},
	{"sleep mode can be always on", Request{Options: new("org/model"), Accelerator: "simulated", SleepMode: SleepModeAlways}},
	{"sleep mode can be never on", Request{Options: new("org/model"), Accelerator: AcceleratorNVML, SleepMode: SleepModeNever}},
	{"sleep mode is not asked for twice", Request{Options: new("org/model --enable_sleep_mode"), Accelerator: AcceleratorNVML}},
	{"the user may forbid sleep mode", Request{Options: new("org/model --no-enable-sleep-mode"), Accelerator: AcceleratorNVML}},

	// GPUs and environment.
	{"GPUs go by index in the order given", Request{Options: new("org/model -tp 3"), GPUs: gpus(2, 0, 1), Accelerator: AcceleratorNVML}},
	{"a MIG device goes by UUID", Request{Options: new("org/model"), GPUs: []GPU{mig}}},
	{"without gpu_uuids CUDA_VISIBLE_DEVICES is the user's", Request{Options: new("org/model -tp 8"), Env: map[string]string{"CUDA_VISIBLE_DEVICES": "3"}}},
	{"a user's CUDA_VISIBLE_DEVICES does not win", Request{
		Options: new("org/model"), GPUs: gpus(1),
		Env: map[string]string{"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "FASTEST_FIRST", "VLLM_SERVER_DEV_MODE": "0"},
	}},
	{"saying the same as the launcher is no conflict", Request{
		Options: new("org/model"), GPUs: gpus(1),
		Env: map[string]string{"CUDA_VISIBLE_DEVICES": "1", "VLLM_SERVER_DEV_MODE": "1"},
	}},
	{"the launcher's settings and secrets are not inherited", Request{
		Options: new("org/model"), GPUs: gpus(0),
		BaseEnv: []string{
			"PATH=/bin", "HOTSEAT_TOKEN=secret", "HOTSEAT_TOKEN_FILE=/t", "HOTSEAT_INSTANCE=x", "HOTSEAT_SIMGPU_DIR=/sim",
			"CUDA_VISIBLE_DEVICES=7", "VLLM_PORT=tcp://10.0.0.1:80", "no-variable",
		},
	}},
	{"the user wins over the launcher's environment, and the GPU provider over both", Request{
		Options:  new("org/model"),
		BaseEnv:  []string{"A=base", "B=base", "C=base", "VLLM_PORT=5000"},
		Env:      map[string]string{"B": "user", "C": "user", "EMPTY": "", "VLLM_API_KEY": "k"},
		ExtraEnv: []string{"C=provider", "D=x=y"},
	}},
	{"the key of the arguments wins over the environment's", Request{Options: new("org/model --api-key k1"), Env: map[string]string{"VLLM_API_KEY": "k2"}}},
	{"an empty key is none", Request{Args: []string{"org/model", "--api-key", ""}, Env: map[string]string{"VLLM_API_KEY": "k2"}}},
}

func TestThePlansAreThoseOfTheGoldenFile(t *testing.T) {
	var text strings.Builder
	for _, tt := range plans {
		p, err := NewVLLM(VLLMOptions{}).Plan(tt.Request)
		require.NoError(t, err, tt.name)
		describe(&text, tt.name, p)
	}
	golden(t, "testdata/plans.golden", text.String())
}

func TestAModelInAFolderIsCalledAsTheRequestDoes(t *testing.T) {
	for options, want := range map[string]string{
		"org/model --seed 1":                              "serve /f --host 127.0.0.1 --port 40001 --served-model-name org/model --seed 1",
		"--model org/model --seed 1 --revision v2":        "serve /f --host 127.0.0.1 --port 40001 --served-model-name org/model --seed 1 --revision v2",
		"org/model --served-model-name mine":              "serve /f --host 127.0.0.1 --port 40001 --served-model-name mine",
		"--config testdata/config/full.yaml --dtype auto": "serve /f --host 127.0.0.1 --port 40001 --config testdata/config/full.yaml --dtype auto",
	} {
		p, err := NewVLLM(VLLMOptions{}).Plan(Request{Options: &options})
		require.NoError(t, err)
		name := p.ServedNames[0]
		p.Folder = "/f"
		assert.Equal(t, want, strings.Join(p.Argv(testHost, testPort), " "))
		running, err := NewVLLM(VLLMOptions{}).Running(append([]string{"vllm"}, p.Argv(testHost, testPort)...), p.Env())
		require.NoError(t, err)
		assert.Equal(t, name, running.ServedNames[0], "found again without a record")
	}
	p, err := NewVLLM(VLLMOptions{}).Plan(Request{Options: new("org/model --revision v2")})
	require.NoError(t, err)
	assert.Equal(t, "v2", p.Revision)
}

func TestTheFolderForSocketsIsTheUsersWhereTheySetOne(t *testing.T) {
	for value, want := range map[string]string{"": "VLLM_RPC_BASE_PATH", "/run/mine": ""} {
		request := Request{Args: []string{"org/model"}}
		if value != "" {
			request.Env = map[string]string{"VLLM_RPC_BASE_PATH": value}
		}
		p, err := NewVLLM(VLLMOptions{}).Plan(request)
		require.NoError(t, err)
		assert.Equal(t, want, p.Scratch)
	}
}

func describe(w *strings.Builder, name string, p Plan) {
	fmt.Fprintf(w, "=== %s\nargv %q\nenv %q\n", name, p.Argv(testHost, testPort), p.Env())
	fmt.Fprintf(w, "model %q served as %q\n", p.Model, p.ServedNames)
	fmt.Fprintf(w, "GPUs %d = tp %d x pp %d x pcp %d x dp %d, memory %g\n", p.GPUs(), p.TP, p.PP, p.PCP, p.DPLocal, p.DeviceMemory.Share)
	fmt.Fprintf(w, "public %q port %d, sleep mode %v, API key %q, sockets by %q\n", p.PublicHost, p.PublicPort, p.SleepMode, string(p.APIKey), p.Scratch)
	for _, note := range p.Notes {
		fmt.Fprintf(w, "note: %s\n", note)
	}
	fmt.Fprintln(w)
}

// reading is what vLLM's own parser makes of a command line: testdata/reads.py.
type reading struct {
	Error       string   `json:"error"`
	Model       string   `json:"model"`
	ServedNames []string `json:"served_model_name"`
	Host        string   `json:"host"`
	Port        int      `json:"port"`
	UDS         *string  `json:"uds"`
	SSLKey      *string  `json:"ssl_keyfile"`
	SSLCert     *string  `json:"ssl_certfile"`
	SSLCA       *string  `json:"ssl_ca_certs"`
	SSLReqs     int      `json:"ssl_cert_reqs"`
	SSLCiphers  *string  `json:"ssl_ciphers"`
	SSLRefresh  bool     `json:"enable_ssl_refresh"`
	Headless    bool     `json:"headless"`
	GRPC        bool     `json:"grpc"`
	APIServers  *int     `json:"api_server_count"`
	Nodes       int      `json:"nnodes"`
	MultiPort   bool     `json:"data_parallel_multi_port_external_lb"`
	TP          int      `json:"tensor_parallel_size"`
	PP          int      `json:"pipeline_parallel_size"`
	PCP         int      `json:"prefill_context_parallel_size"`
	DP          int      `json:"data_parallel_size"`
	DPLocal     *int     `json:"data_parallel_size_local"`
	DPRank      *int     `json:"data_parallel_rank"`
	DPExternal  bool     `json:"data_parallel_external_lb"`
	Utilization float64  `json:"gpu_memory_utilization"`
	SleepMode   bool     `json:"enable_sleep_mode"`
	APIKeys     []string `json:"api_key"`
}

// requireSame holds a plan against vLLM's own reading of its command line.
func requireSame(t *testing.T, p Plan, r reading) {
	t.Helper()
	require.Empty(t, r.Error, "vLLM does not take this command line")
	assert.Equal(t, testHost, r.Host)
	assert.Equal(t, testPort, r.Port)
	for _, elsewhere := range []*string{r.UDS, r.SSLKey, r.SSLCert, r.SSLCA, r.SSLCiphers} {
		assert.Nil(t, elsewhere)
	}
	assert.Zero(t, r.SSLReqs)
	assert.False(t, r.SSLRefresh || r.Headless || r.GRPC || r.MultiPort)
	assert.Equal(t, 1, r.Nodes)
	if r.APIServers != nil {
		assert.Positive(t, *r.APIServers)
	}

	assert.Equal(t, r.Model, p.Model)
	if len(r.ServedNames) == 0 {
		r.ServedNames = []string{r.Model}
	}
	assert.Equal(t, r.ServedNames, p.ServedNames)
	assert.Equal(t, []int{r.TP, r.PP, r.PCP}, []int{p.TP, p.PP, p.PCP})
	local := r.DP
	if r.DPLocal != nil {
		local = *r.DPLocal
	}
	if r.DPExternal || r.DPRank != nil {
		local = 1
	}
	assert.Equal(t, local, p.DPLocal)
	assert.InDelta(t, r.Utilization, p.DeviceMemory.Share, 1e-9)
	assert.Equal(t, r.SleepMode, p.SleepMode)
	if key := string(p.APIKey); len(r.APIKeys) > 0 && key != "" {
		assert.Contains(t, r.APIKeys, key)
	}
}

func TestVLLMReadsThePlansAsTheLauncherDoes(t *testing.T) {
	var argvs strings.Builder
	known := []Plan{}
	for _, tt := range plans {
		if strings.Contains(tt.name, "unknown flag") {
			continue // this vLLM does not know it
		}
		p, err := NewVLLM(VLLMOptions{}).Plan(tt.Request)
		require.NoError(t, err, tt.name)
		require.NoError(t, json.NewEncoder(&argvs).Encode(p.Argv(testHost, testPort)))
		known = append(known, p)
	}
	golden(t, "testdata/argvs.jsonl", argvs.String())
	if *update {
		t.Log("now run testdata/reads.py, as it says")
		return
	}
	readings := readingsOf(t, "testdata/reads.jsonl")
	require.Len(t, readings, len(known), "run testdata/reads.py, as it says")
	for i, p := range known {
		t.Run(strings.Join(p.Argv(testHost, testPort), " "), func(t *testing.T) { requireSame(t, p, readings[i]) })
	}
}

func readingsOf(t *testing.T, path string) []reading {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var readings []reading
	for line := range strings.Lines(string(data)) {
		var r reading
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		readings = append(readings, r)
	}
	return readings
}

func TestAPlanCanBeAskedForItsArgumentsAgain(t *testing.T) {
	p, err := NewVLLM(VLLMOptions{}).Plan(Request{Options: new("org/model --seed 1")})
	require.NoError(t, err)
	first := p.Argv(testHost, 1)
	_ = append(first[:1], "overwritten")
	p.Env()[0] = "overwritten"
	assert.Equal(t, []string{"serve", "org/model", "--host", "::1", "--port", "2", "--seed", "1"}, p.Argv("::1", 2))
	assert.Equal(t, []string{"VLLM_SERVER_DEV_MODE=1"}, p.Env())
}

func TestASecretDoesNotShow(t *testing.T) {
	p, err := NewVLLM(VLLMOptions{}).Plan(Request{Options: new("m --api-key sesame")})
	require.NoError(t, err)
	require.Equal(t, Secret("sesame"), p.APIKey)
	encoded, err := json.Marshal(p.APIKey)
	require.NoError(t, err)
	for _, text := range []string{fmt.Sprint(p.APIKey), fmt.Sprintf("%v %+v %#v %q", p.APIKey, p.APIKey, p.APIKey, p.APIKey), string(encoded)} {
		assert.NotContains(t, text, "sesame")
	}
}
