package engine

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// requireOwned holds a plan against the model of vLLM's parser: if vLLM takes
// the command line at all, it listens where the launcher says and nowhere else,
// and serves what the plan says.
func requireOwned(t *testing.T, p Plan) {
	t.Helper()
	argv := p.Argv(testHost, testPort)
	require.Equal(t, []string{"serve", p.Model, "--host", testHost, "--port", strconv.Itoa(testPort)}, argv[:6])
	got, err := parseLikeVLLM(argv)
	if err != nil {
		return
	}
	assert.Equal(t, []string{testHost}, got.flags["--host"], "%q", argv)
	assert.Equal(t, []string{strconv.Itoa(testPort)}, got.flags["--port"], "%q", argv)
	for flag := range got.flags {
		switch {
		case flag == "--root-path", flag == "--middleware", flag == "--uds", flag == "--headless", flag == "--grpc",
			strings.HasPrefix(flag, "--ssl-"), flag == "--enable-ssl-refresh", flag == "--data-parallel-multi-port-external-lb":
			t.Errorf("%s is left in %q", flag, argv)
		}
	}
	assert.Equal(t, "1", strings.TrimSpace(got.last("--nnodes", "1")), "%q", argv)
	assert.Equal(t, p.Model, got.model(), "%q", argv)
	if len(got.unknown) > 0 {
		return // this vLLM would not take it
	}
	served := got.flags["--served-model-name"]
	if served == nil {
		served = []string{p.Model}
	}
	assert.Equal(t, served, p.ServedNames, "%q", argv)
	for flag, n := range map[string]int{
		"--tensor-parallel-size": p.TP, "--pipeline-parallel-size": p.PP, "--prefill-context-parallel-size": p.PCP,
	} {
		read, err := strconv.Atoi(strings.TrimSpace(got.last(flag, "1")))
		require.NoError(t, err, "%q", argv)
		assert.Equal(t, read, n, "%s in %q", flag, argv)
	}
}

func FuzzOptions(f *testing.F) {
	for _, tt := range plans {
		if tt.Options != nil {
			f.Add(*tt.Options)
		}
	}
	for _, tt := range refusals {
		f.Add(strings.Join(tt.args, " "))
	}
	f.Add(`m 'unterminated`)
	f.Add("m \\\n --port\t1")
	engine := NewVLLM(VLLMOptions{})
	f.Fuzz(func(t *testing.T, options string) {
		if p, err := engine.Plan(Request{Options: &options}); err == nil {
			requireOwned(t, p)
		} else {
			var input *InputError
			require.ErrorAs(t, err, &input)
			require.Equal(t, "options", input.Field)
		}
	})
}

func FuzzArguments(f *testing.F) {
	for _, tt := range plans {
		f.Add(strings.Join(tt.Args, "\n"))
	}
	for _, tt := range refusals {
		f.Add(strings.Join(tt.args, "\n"))
	}
	engine := NewVLLM(VLLMOptions{})
	f.Fuzz(func(t *testing.T, lines string) {
		if p, err := engine.Plan(Request{Args: strings.Split(lines, "\n")}); err == nil {
			requireOwned(t, p)
		}
	})
}

// vocabulary is what mix mixes: all that has a meaning, and ways to disguise it.
var vocabulary = strings.Split("m|org/model|--model|--model=x|--port|--port=1|--po|-p|--port.x|--port.x=1|--por=7|---port|--PORT|"+
	"--host|--host=evil|--ho|--host.x|--h|0.0.0.0|8000|1|2|-1|-0.5|-|--|=|a b|-x y|--port 1|--uds|--uds=/s|--ud|--u|--uds.a=1|--no-uds|"+
	"--ssl-keyfile|--ssl_certfile=c|--ssl|--headless|--head|--grpc|--gr|-dpm|-n|-n2|-n1|--nnodes|-asc|-tp|-tp=2|-t|--tensor-parallel-size|"+
	"--tensor|-pp|-dp|-dpl|--served-model-name|--served_model_name=s|--served|--enable-sleep-mode|--no-enable-sleep-mode|--enable-s|"+
	"--enforce-eager|--enforce|--dtype|auto|--seed|-O3|-O|-O=--uds|-O-n2|--hf-token|--api-key|--config|--config=testdata/config/full.yaml|"+
	"testdata/config/nomodel.yml|--con|-cc.mode|-cc|{}|--x.y|--x.y=1|--flag-of-tomorrow|--flag-of-tomorrow=--port|"+
	"--gpu-memory-utilization|.5|--gpu_memory_utilization=0.25|--root-path|/x|--root_path=/x|--root|--middleware|--mid||\n|--model\n|--lora-modules|--chat-template|--chat-template=--uds", "|")

func mix(r *rand.Rand) []string {
	args := make([]string, r.IntN(9))
	for i := range args {
		args[i] = vocabulary[r.IntN(len(vocabulary))]
	}
	if r.IntN(2) == 0 {
		args = append([]string{"org/model"}, args...)
	}
	return args
}

func TestNoMixOfArgumentsTakesTheAddressAway(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	engine := NewVLLM(VLLMOptions{})
	planned, taken := 0, 0
	for range 30_000 {
		p, err := engine.Plan(Request{Args: mix(r)})
		if err != nil {
			continue
		}
		planned++
		requireOwned(t, p)
		if got, err := parseLikeVLLM(p.Argv(testHost, testPort)); err == nil && len(got.unknown) == 0 {
			taken++
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d mixes were planned, %d of them vLLM would take", planned, taken)
	assert.Greater(t, taken, 1000, "the mixes test nothing")
}
