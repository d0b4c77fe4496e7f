package engine

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestARunningEngineIsReadFromItsProcess(t *testing.T) {
	v := NewVLLM(VLLMOptions{})
	for name, c := range map[string]struct {
		request Request
		want    Running
	}{
		"the key of a flag": {
			Request{
				Args: []string{"org/model", "--served-model-name", "m", "n", "--api-key", "sesame", "--gpu-memory-utilization", "0.4", "--port", "8000"},
				GPUs: []GPU{{UUID: "GPU-b", Index: 1}},
			},
			Running{
				Args: []string{"org/model", "--served-model-name", "m", "n", "--api-key", "sesame", "--gpu-memory-utilization", "0.4"},
				Port: 40001, Devices: []string{"1"}, Model: "org/model", ServedNames: []string{"m", "n"}, APIKey: "sesame",
			},
		},
		"the key of a variable": {
			Request{Args: []string{"org/model"}, Env: map[string]string{"VLLM_API_KEY": "sesame"}},
			Running{Args: []string{"org/model"}, Port: 40001, Model: "org/model", ServedNames: []string{"org/model"}, APIKey: "sesame"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := v.Plan(c.request)
			require.NoError(t, err)
			c.want.DeviceMemory, c.want.KeepAlive = plan.DeviceMemory, 5*time.Second
			for _, program := range [][]string{{"/usr/bin/vllm"}, {"/usr/bin/python3", "-X", "utf8", "/usr/bin/vllm"}} {
				got, err := v.Running(append(program, plan.Argv("127.0.0.1", 40001)...), plan.Env())
				require.NoError(t, err)
				assert.Equal(t, c.want, got)
				onSocket := c.want
				onSocket.Port, onSocket.Socket = 0, "/run/a/http"
				got, err = v.Running(append(program, plan.SocketArgv("/run/a/http")...), plan.SocketEnv("/run/a/http"))
				require.NoError(t, err)
				assert.Equal(t, onSocket, got)
			}
		})
	}
}

func TestAProcessThatIsNoEngineIsNotTakenForOne(t *testing.T) {
	v := NewVLLM(VLLMOptions{})
	for _, argv := range [][]string{nil, {"sleep", "60"}, {"vllm", "serve"}, {"vllm", "serve", "m", "--uds"}, {"vllm", "serve", "m", "--host", "127.0.0.1", "--port"}, {"vllm", "serve", "m", "--host", "127.0.0.1", "--port", "x", "--"}} {
		_, err := v.Running(argv, nil)
		assert.Error(t, err, "%q", argv)
	}
}

func TestAnEngineWhoseConfigFileIsGoneIsReadWithoutIt(t *testing.T) {
	v := NewVLLM(VLLMOptions{})
	path := filepath.Join(t.TempDir(), "engine.yaml")
	require.NoError(t, os.WriteFile(path, []byte("api-key: sesame\n"), 0o600))
	plan, err := v.Plan(Request{Args: []string{"org/model", "--config", path}})
	require.NoError(t, err)
	argv := append([]string{"vllm"}, plan.Argv("127.0.0.1", 40001)...)

	there, err := v.Running(argv, nil)
	require.NoError(t, err)
	assert.False(t, there.ConfigGone)
	assert.Equal(t, Secret("sesame"), there.APIKey)

	require.NoError(t, os.Remove(path))
	gone, err := v.Running(argv, nil)
	require.NoError(t, err)
	assert.True(t, gone.ConfigGone)
	assert.Equal(t, []string{"org/model"}, gone.Args)
	assert.Equal(t, 40001, gone.Port)
	assert.Empty(t, gone.APIKey)
}
