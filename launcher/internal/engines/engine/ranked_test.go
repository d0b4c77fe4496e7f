package engine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/engines/rank"
)

// ofRank is a request of one of two ranks, which share the GPUs of the arguments.
func ofRank(index int, args ...string) Request {
	return Request{
		Args: append([]string{"org/model"}, args...), GPUs: []GPU{{UUID: "g0"}},
		Rank: &rank.Rank{Group: "g", Index: index, Size: 2, Host: "10.0.0.7", Port: 41000, Address: "10.0.0.8", Interface: "eth0"},
	}
}

const rankFlags = "--nnodes 2 --node-rank 1 --master-addr 10.0.0.7 --master-port 41000 --distributed-executor-backend mp"

func TestWorkerHasNoAddress(t *testing.T) {
	r := ofRank(1, "--host", "127.0.0.1", "--port", "8000", "-pp", "2", "--api-server-count", "3", "--seed", "1")
	p, err := NewVLLM(VLLMOptions{}).Plan(r)
	require.NoError(t, err)
	assert.Equal(t, "serve org/model --headless "+rankFlags+" -pp 2 --seed 1", strings.Join(p.WorkerArgv(), " "))
	assert.Equal(t, 1, p.GPUs())
	assert.True(t, p.IsWorker())
	assert.Zero(t, p.PublicPort)
	assert.Empty(t, p.PublicHost)
	assert.Empty(t, p.Compiles, "no start of a rank waits for another that compiles the same")

	running, err := NewVLLM(VLLMOptions{}).Running(append([]string{"vllm"}, p.WorkerArgv()...), p.Env())
	require.NoError(t, err)
	assert.Equal(t, &rank.Rank{Index: 1, Size: 2, Host: "10.0.0.7", Port: 41000}, running.Rank)
	assert.Equal(t, []string{"org/model", "-pp", "2", "--seed", "1"}, running.Args)
	assert.Zero(t, running.Port)
}

func TestConfigFileOfAWorkerNamesNoAPIServers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(path, []byte("api_server_count: 3\n"), 0o600))
	input := refused(t, ofRank(1, "-tp", "2", "--config", path))
	assert.Equal(t, "--api-server-count", input.Flag)
	assert.Contains(t, input.Message, "the --config file "+path+": vLLM refuses it for a rank other than the entry; move it to the arguments")
	_, err := NewVLLM(VLLMOptions{}).Plan(ofRank(0, "-tp", "2", "--config", path))
	require.NoError(t, err)
}

func TestEntryHasAnAddressAndItsRank(t *testing.T) {
	p, err := NewVLLM(VLLMOptions{}).Plan(ofRank(0, "-tp", "2", "--distributed-executor-backend", "mp"))
	require.NoError(t, err)
	flags := strings.Replace(rankFlags, "--node-rank 1", "--node-rank 0", 1)
	assert.Equal(t, "serve org/model --uds /run/a "+flags+" -tp 2 --distributed-executor-backend mp", strings.Join(p.SocketArgv("/run/a"), " "))
	running, err := NewVLLM(VLLMOptions{}).Running(append([]string{"vllm"}, p.SocketArgv("/run/a")...), p.Env())
	require.NoError(t, err)
	assert.Equal(t, "/run/a", running.Socket)
	assert.Equal(t, 0, running.Rank.Index)
}

func TestFlagsThatTheLauncherWritesForARankAreRefused(t *testing.T) {
	for _, args := range []string{
		"--nnodes 1", "--nnodes=2", "-n2", "--node-rank 1", "--node_rank=1", "-r 1", "-r1", "--master-addr a", "--master-port=1", "--headless",
		"--distributed-executor-backend ray", "--data-parallel-size 2", "-dp=2", "-dpl 0", "-dpn 0", "-dpe", "--master-p 1",
		"--data-parallel-hybrid-lb", "--data-parallel-start-rank 0",
	} {
		words := strings.Fields(args)
		input := refused(t, ofRank(0, append([]string{"-tp", "2"}, words...)...))
		assert.Equal(t, "args", input.Field, args)
		assert.NotEmpty(t, input.Flag, args)
	}
	for _, args := range [][]string{{"--nnodes", "2"}, {"--headless"}} {
		assert.Contains(t, refused(t, Request{Args: append([]string{"m"}, args...)}).Message, "rank in the body of its call")
	}
}

func TestRanksShareTheGPUsEvenly(t *testing.T) {
	input := refused(t, ofRank(0, "-tp", "3"))
	assert.Equal(t, "rank.size", input.Field)
	assert.Contains(t, input.Message, "2 ranks cannot share 3 GPUs evenly")
	input = refused(t, ofRank(0, "-tp", "2", "-pp", "2"))
	assert.Equal(t, "gpu_uuids", input.Field)
	assert.Contains(t, input.Message, "the arguments need 2 GPUs (tensor parallel 2 x pipeline parallel 2 ÷ 2 ranks), but gpu_uuids names 1")
}

func TestVariablesOfARankWinButForTheNetworkInterfaces(t *testing.T) {
	r := ofRank(0, "-tp", "2")
	r.BaseEnv = []string{"NCCL_SOCKET_IFNAME=ib0", "GROUP_SIZE=9"}
	r.Env = map[string]string{"VLLM_HOST_IP": "10.9.9.9"}
	p, err := NewVLLM(VLLMOptions{}).Plan(r)
	require.NoError(t, err)
	for _, v := range []string{"VLLM_HOST_IP=10.0.0.8", "GROUP_SIZE=2", "WORKER_INDEX=0", "ENTRY_ADDRESS=10.0.0.7", "GLOO_SOCKET_IFNAME=eth0", "NCCL_SOCKET_IFNAME=ib0"} {
		assert.True(t, slices.Contains(p.Env(), v), v)
	}
	assert.Contains(t, p.Notes, "VLLM_HOST_IP of env_vars is overridden: the launcher sets it to 10.0.0.8")
}
