package engine

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/engines/rank"
)

func whisper(words ...string) *Command {
	return NewCommand(CommandOptions{Name: "whisper", Words: words, Health: "/health", Inference: []string{"/inference"}})
}

func TestCommandLineOfACommand(t *testing.T) {
	for name, tt := range map[string]struct {
		command          *Command
		request          Request
		port, socket     string // the arguments, by where the program listens; empty: it cannot
		portEnv, sockEnv string // the variables that are the launcher's
	}{
		"a port in the words of the program": {
			command: whisper("--port", "${PORT}"), request: Request{Args: []string{"--model", "a b"}, GPUs: gpus(2, 0)},
			port:    "--port|5|--model|a b",
			portEnv: `CUDA_DEVICE_ORDER=PCI_BUS_ID|CUDA_VISIBLE_DEVICES=2,0|HOTSEAT_COMMAND={"name":"whisper","model":"whisper","args":["--model","a b"]}|PORT=5`,
		},
		"a port in the arguments of the model": {
			command: whisper("-v"), request: Request{Options: new("--at=127.0.0.1:${PORT} ${PORT}"), ServedName: "stt", GPUMemory: 7},
			port:    "-v|--at=127.0.0.1:5|5",
			portEnv: `HOTSEAT_COMMAND={"name":"whisper","model":"stt","args":["--at=127.0.0.1:${PORT}","${PORT}"],"gpu_memory":7}|PORT=5`,
		},
		"a socket": {
			command: whisper("--uds", "${SOCKET}"), request: Request{Args: []string{}},
			socket:  "--uds|/s",
			sockEnv: `HOTSEAT_COMMAND={"name":"whisper","model":"whisper"}|SOCKET=/s`,
		},
		"a program that reads its variable": {
			command: whisper(), request: Request{BaseEnv: []string{"PORT=80", "SOCKET=/x", "HOTSEAT_COMMAND=x", "A=b"}},
			port:    "",
			portEnv: `A=b|HOTSEAT_COMMAND={"name":"whisper","model":"whisper"}|PORT=5`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := tt.command.Plan(tt.request)
			require.NoError(t, err)
			assert.True(t, plan.FindsModel)
			assert.Equal(t, tt.request.GPUMemory, plan.DeviceMemory.Of(1<<30))
			if tt.socket != "" {
				assert.Equal(t, SocketOnly, plan.Listens)
				assert.Equal(t, tt.socket, strings.Join(plan.SocketArgv("/s"), "|"))
				assert.Equal(t, tt.sockEnv+"|FORWARDED_ALLOW_IPS=*", strings.Join(plan.SocketEnv("/s"), "|"))
				return
			}
			assert.Equal(t, PortOnly, plan.Listens)
			assert.Equal(t, tt.port, strings.Join(plan.Argv("127.0.0.1", 5), "|"))
			assert.Equal(t, tt.portEnv, strings.Join(plan.PortEnv(5), "|"))
		})
	}
}

func TestRequestThatACommandCannotHonourIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		request     Request
		field, text string
	}{
		"a rank":                         {Request{Rank: &rank.Rank{Size: 2}}, "rank", "has no ranks"},
		"a port and a socket":            {Request{Args: []string{"${SOCKET}"}}, "args", "has ${PORT} and ${SOCKET}: keep one"},
		"a variable that is the port":    {Request{Env: map[string]string{"PORT": "1"}}, "env_vars.PORT", "leave it out"},
		"a variable that is the mark":    {Request{Env: map[string]string{"HOTSEAT_COMMAND": "1"}}, "env_vars.HOTSEAT_COMMAND", "leave it out"},
		"arguments and options":          {Request{Args: []string{"a"}, Options: new("a")}, "args", "leave one of them out"},
		"arguments too long for a child": {Request{Args: []string{strings.Repeat("x", maxArgument-20)}}, "args", "must have fewer than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := whisper("${PORT}").Plan(tt.request)
			var input *InputError
			require.ErrorAs(t, err, &input)
			assert.Equal(t, tt.field, input.Field)
			assert.Contains(t, input.Message, tt.text)
		})
	}
}

// The process of a command is known by its environment, whatever program it has become.
func TestProcessTellsItsCommand(t *testing.T) {
	for _, word := range []string{"${PORT}", "${SOCKET}"} {
		c := NewCommand(CommandOptions{Name: "whisper", Words: []string{word}, ModelName: "large"})
		plan, err := c.Plan(Request{Args: []string{"--api-key", "k"}, GPUs: gpus(1), GPUMemory: 9, ServedName: "stt"})
		require.NoError(t, err)
		want := Running{
			Args: []string{"--api-key", "k"}, Devices: []string{"1"}, Model: "large", ServedNames: []string{"large"},
			DeviceMemory: DeviceMemory{Bytes: 9}, KeepAlive: closesEach, Port: 5,
		}
		env := plan.PortEnv(5)
		if word == "${SOCKET}" {
			want.Port, want.Socket = 0, "/s"
			env = plan.SocketEnv("/s")
		}
		vllm := []string{"python3", "vllm", "serve", "m", "--uds", "/s"}
		got, err := c.Running(vllm, env)
		require.NoError(t, err)
		assert.Equal(t, want, got)

		_, err = NewCommand(CommandOptions{Name: "other"}).Running(vllm, env)
		require.ErrorContains(t, err, "not that of the command other")
		_, err = NewVLLM(VLLMOptions{}).Running(vllm, env)
		require.Error(t, err, "a command may run vLLM")
		llama := []string{"llama-server", "--model", "m", "--alias", "m", "--host", "/s", "--slots", "--metrics"}
		_, err = NewLlamaCpp(LlamaCppOptions{}).Running(llama, env)
		require.Error(t, err)
		_, err = NewLlamaCpp(LlamaCppOptions{}).Running(llama, nil)
		require.NoError(t, err)
	}
	_, err := whisper().Running(nil, []string{"PORT=5"})
	require.Error(t, err)
}

func TestCommandIsReadyWhenItsHealthPathAnswers(t *testing.T) {
	status := 503
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/health", r.URL.Path)
		w.WriteHeader(status)
	}))
	defer server.Close()
	c := whisper()
	defer c.Close()
	var answered *StatusError
	require.ErrorAs(t, c.Ready(t.Context(), server.URL), &answered)
	status = 200
	require.NoError(t, c.Ready(t.Context(), server.URL))
	assert.Equal(t, Paths{Status: []string{"/v1/models", "/health"}, Inference: []string{"/inference"}}, c.Paths())
}

func TestCommandWithoutHealthPathIsReadyWhenItListens(t *testing.T) {
	c := NewCommand(CommandOptions{Name: "x"})
	assert.Equal(t, []string{"/v1/models"}, c.Paths().Status)
	path := filepath.Join(t.TempDir(), "s")
	assert.True(t, Refused(c.Ready(t.Context(), SocketBase(path))))
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer listener.Close()
	require.NoError(t, c.Ready(t.Context(), SocketBase(path)))
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	base := PortBase(tcp.Addr().(*net.TCPAddr).Port)
	require.NoError(t, c.Ready(t.Context(), base))
	require.NoError(t, tcp.Close())
	assert.True(t, Refused(c.Ready(t.Context(), base)))
}

func TestExitOfACommandIsExplainedByItsLastLine(t *testing.T) {
	c := whisper()
	assert.Equal(t, Cause{CauseExited, "the engine exited with code 3; its last line is: no model"}, c.Diagnose(Exit{Code: new(3)}, []string{"loading", "\x1b[31mno model\x1b[0m", " "}))
	assert.Equal(t, Cause{CauseExited, "the engine exited with code 0"}, c.Diagnose(Exit{Code: new(0)}, nil))
	assert.Equal(t, CauseKilled, c.Diagnose(Exit{Signal: int(unix.SIGKILL)}, []string{"x"}).Code)
	assert.Contains(t, c.Diagnose(Exit{Code: new(127)}, []string{"x: not found"}).Message, "check the launcher's setting commands, whisper; its last line is: x: not found")
}
