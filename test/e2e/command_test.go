package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/enginesim/recorder"
)

// commandServer is the first argument of this test's binary when it is the program of a command: a
// small server with an API like OpenAI's, which holds memory of a simulated GPU.
const commandServer = "command-server"

func runCommandServer(args []string) int {
	flags := flag.NewFlagSet(commandServer, flag.ExitOnError)
	port, socket := flags.String("port", os.Getenv("PORT"), ""), flags.String("uds", "", "")
	gib, fail := flags.Uint64("gib", 60, ""), flags.String("fail", "", "")
	health := flags.String("health", "/health", "")
	_ = flags.Parse(args) // it ends the process
	if *fail != "" {
		fmt.Println("loading")
		fmt.Fprintln(os.Stderr, *fail)
		return 3
	}
	if err := holdMemory(*gib << 30); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	network, address := "tcp", "127.0.0.1:"+*port
	if *socket != "" {
		network, address = "unix", *socket
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+*health, func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		body := map[string]any{}
		_ = json.NewDecoder(r.Body).Decode(&body) // the answer shows it
		body["path"], body["pid"], body["args"] = r.URL.Path, os.Getpid(), flags.Args()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	})
	fmt.Fprintln(os.Stderr, http.Serve(listener, mux))
	return 1
}

// holdMemory holds memory of the first GPU that the process sees, as long as it lives.
func holdMemory(bytes uint64) error {
	gpus, err := simgpu.Open(os.Getenv("HOTSEAT_SIMGPU_DIR"))
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(os.Getenv("CUDA_VISIBLE_DEVICES"), ",")
	index, err := strconv.Atoi(first)
	if err != nil {
		return fmt.Errorf("no GPU is visible: %w", err)
	}
	uuid := gpus.GPUs()[index].UUID
	awake, err := recorder.New(recorder.Options{Dir: gpus.Path(), GPU: uuid, Share: 0.75})
	if err != nil {
		return err
	}
	return awake.Awake(func() error { return gpus.Reserve(uuid, os.Getpid(), bytes) })
}

// commands describes two commands of this test's binary: port and socket.
func commands(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return fmt.Sprintf(`commands:
- {name: port, program: [%[1]s, %[2]s, --port, "${PORT}"], inference: [/inference]}
- {name: socket, program: [%[1]s, %[2]s, --uds, "${SOCKET}", --health, /up], health: /up, model_name: large}
- {name: bare, program: [%[1]s, %[2]s], health: none}
`, self, commandServer)
}

// echo is what the server of a command answers: the request, and of itself.
type echo struct {
	Model, Path string
	PID         int
	Args        []string
	Temperature float64
	TopK        any `json:"top_k"`
}

func chat(t *testing.T, url, model string) (answer echo) {
	t.Helper()
	got := call(t, "POST", url+"/v1/chat/completions", map[string]any{"model": model, "messages": []any{map[string]any{"role": "user", "content": "hi"}}, "top_k": 5})
	require.Equal(t, 200, got.Status, "%s", got.Body)
	got.Into(t, &answer)
	return answer
}

// Two programs and the engine of vLLM take turns on one GPU: a program sleeps by ending, and wakes
// by a new start.
func TestCommandsTakeTurnsOnAGPU(t *testing.T) {
	t.Parallel()
	n, url := offer(t, commands(t)+`models:
- {name: a, aliases: [alias], engine: port, gpus: 1, gpu_memory: 60GiB, args: [-gib, 60, --, x y], params: {strip: [top_k], set: {temperature: 0.5}}}
- {name: b, engine: socket, gpus: 1, gpu_memory: 60GiB}
- {name: c, engine: bare, gpus: 1, gpu_memory: 60GiB}
`+modelText("v", ""), "--gpus", "simulated:1")
	first := chat(t, url, "alias")
	assert.Equal(t, echo{Model: "a", Path: "/v1/chat/completions", PID: first.PID, Args: []string{"x y"}, Temperature: 0.5}, first)
	i := n.instances()["m-a"]
	assert.Equal(t, first.PID, i.PID)
	assert.Equal(t, "port", i.Engine)
	assert.Equal(t, map[string]uint64{GPU(0): 60 << 30}, i.GPUBytes)

	assert.Equal(t, "large", chat(t, url, "b").Model, "the program has its own name for the model")
	asleep := n.instances()["m-a"]
	assert.Equal(t, "sleeping", asleep.State)
	assert.Zero(t, asleep.PID)
	assert.Empty(t, asleep.GPUBytes[GPU(0)])
	assert.Equal(t, 200, ask(t, url, "v").Status)
	assert.Equal(t, "c", chat(t, url, "c").Model)
	again := chat(t, url, "a")
	assert.NotEqual(t, first.PID, again.PID)
	first.PID = again.PID
	first.Model = "a"
	assert.Equal(t, first, again)
	other := call(t, "POST", url+"/inference", map[string]any{"model": "a"})
	require.Equal(t, 200, other.Status, "%s", other.Body)
	var at echo
	other.Into(t, &at)
	assert.Equal(t, "/inference", at.Path)
	for _, m := range []string{"m-b", "m-c", "m-v"} {
		assert.Equal(t, "sleeping", n.instances()[m].State, m)
	}
}

// A launcher that takes over from a killed one finds the programs that run, with their records and
// without, and wakes those that sleep.
func TestCommandsOutliveTheirLauncher(t *testing.T) {
	t.Parallel()
	n, url := offer(t, commands(t)+`models:
- {name: a, engine: port, gpus: ["`+GPU(0)+`"], gpu_memory: 60GiB}
- {name: b, engine: socket, gpus: ["`+GPU(0)+`"], gpu_memory: 60GiB}
- {name: c, engine: socket, gpus: ["`+GPU(1)+`"], gpu_memory: 60GiB, args: [--, x]}
`)
	b, a, c := chat(t, url, "b"), chat(t, url, "a"), chat(t, url, "c")
	n.Kill9()
	n.Start()
	assert.Equal(t, a.PID, chat(t, url, "a").PID)
	assert.Equal(t, c.PID, chat(t, url, "c").PID)
	assert.Equal(t, "sleeping", n.instances()["m-b"].State)
	woken := chat(t, url, "b")
	assert.NotEqual(t, b.PID, woken.PID)
	assert.Equal(t, "large", woken.Model)
	assert.NotEqual(t, a.PID, chat(t, url, "a").PID)

	n.Kill9()
	require.NoError(t, os.RemoveAll(filepath.Join(n.State, "instances")))
	n.Start()
	found := n.Get("m-c")
	assert.Equal(t, c.PID, found.PID)
	assert.Equal(t, "socket", found.Engine)
	assert.Equal(t, []string{"--", "x"}, found.Args)
	assert.Equal(t, []string{"large"}, found.ServedModelNames)
	assert.Equal(t, On(1), found.GPUUUIDs)
	assert.Contains(t, found.Reason, "its facts are read from its process")
}

// A program that ends before it is up is a failed start, whose answer has its last line.
func TestCommandThatDoesNotStartSaysWhy(t *testing.T) {
	t.Parallel()
	n, url := offer(t, commands(t)+`models:
- {name: bad, engine: port, gpus: 1, args: [--fail, there is no model here], restart: never}
- {name: a, engine: port, gpus: 1}
`)
	got := ask(t, url, "bad")
	assert.Equal(t, 502, got.Status, "%s", got.Body)
	assert.Contains(t, refusal(t, got).Message, "the engine exited with code 3; its last line is: there is no model here")
	assert.Equal(t, []string{"loading", "there is no model here"}, n.instances()["m-bad"].LastLogLines)
	chat(t, url, "a")
}

// Clients of the control API may start a command by its name, and no other program.
func TestCommandIsCreatedByItsName(t *testing.T) {
	t.Parallel()
	n, url := offer(t, commands(t))
	i := n.Call("PUT", "/v2/vllm/instances/mine", map[string]any{"engine": "port", "args": []string{}, "gpu_uuids": On(1), "annotations": map[string]string{launcherapi.AnnotationGPUMemory: "64424509440"}})
	require.Equal(t, 201, i.Status, "%s", i.Body)
	n.Await("mine", "awake")
	assert.Equal(t, "port", chat(t, url, "port").Model)
	for name, tt := range map[string]struct {
		change map[string]any
		says   string
	}{
		"another program":  {map[string]any{"engine": "sh"}, `unknown engine "sh"; there is "vllm", "llamacpp", "port", "socket", "bare"`},
		"a path":           {map[string]any{"engine": "/bin/sh"}, "the name of an engine, such as vllm"},
		"an unclear size":  {map[string]any{"engine": "port", "annotations": map[string]string{launcherapi.AnnotationGPUMemory: "6GiB"}}, "must be a decimal number of bytes above 0"},
		"its own variable": {map[string]any{"engine": "port", "env_vars": map[string]string{"PORT": "1"}}, "PORT cannot be set for a command"},
		"a fork":           {map[string]any{"engine": "port", "start_method": "fork"}, "the engine port cannot be forked"},
		"the store":        {map[string]any{"engine": "port", "model_cache": "require"}, "reads no model of the store"},
	} {
		t.Run(name, func(t *testing.T) {
			body := map[string]any{"args": []string{}, "gpu_uuids": On(0)}
			for key, value := range tt.change {
				body[key] = value
			}
			got := n.Call("PUT", "/v2/vllm/instances/other", body)
			assert.Equal(t, 422, got.Status, "%s", got.Body)
			assert.Contains(t, string(got.Body), strings.ReplaceAll(tt.says, `"`, `\"`))
		})
	}
}

// Mistakes of commands end the start with line and column. A reload that brings a command says that
// it needs a start.
func TestMistakesOfCommandsAreTold(t *testing.T) {
	t.Parallel()
	n, url := offerStopped(t, "commands:\n- {name: x, program: [/no/such/program]}\nmodels:\n- {name: a, engine: y}\n")
	out, err := exec.Command(bin.launcher, n.args...).CombinedOutput()
	failed, ok := err.(*exec.ExitError) //nolint:errorlint // Output gives it as it is
	require.True(t, ok, "%v", err)
	assert.Equal(t, 2, failed.ExitCode())
	assert.Contains(t, string(out), n.config+":2:23: the program cannot be found: ")
	assert.Contains(t, string(out), n.config+":4:21: engine must be one of vllm, llamacpp, x, not \"y\"")

	models := "models:\n" + modelText("a", "")
	require.NoError(t, os.WriteFile(n.config, []byte(models), 0o600))
	n.Start()
	n.rewrite(commands(t) + models + "- {name: b, engine: port, gpus: 1}\n")
	n.logged("the commands of the configuration have changed; the launcher takes them when it is started again")
	n.logged("the configuration has a mistake; its models stay as they were")
	assert.Equal(t, 200, ask(t, url, "a").Status)
	assert.Equal(t, 404, ask(t, url, "b").Status)
	n.Stop()
	n.Start()
	chat(t, url, "b")
}

// The import makes commands of programs that llama-swap runs, and they serve their models.
func TestImportedCommandServes(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	n, url := offerStopped(t, "")
	theirs := filepath.Join(t.TempDir(), "config.yaml")
	file := fmt.Sprintf("models:\n  org/speech:\n    cmd: %s %s --port ${PORT} -- a 'b c'\n    aliases: [stt]\n    useModelName: big\n    checkEndpoint: /health\n    proxy: http://localhost:${PORT}\n    env: [CUDA_VISIBLE_DEVICES=0]\n", self, commandServer)
	require.NoError(t, os.WriteFile(theirs, []byte(file), 0o600))
	made, notes, code := n.commands("import", "llama-swap", theirs)
	require.Zero(t, code, notes)
	require.NoError(t, os.WriteFile(n.config, []byte(made), 0o600))
	n.Start()
	got := chat(t, url, "stt")
	assert.Equal(t, "big", got.Model)
	assert.Equal(t, []string{"a", "b c"}, got.Args)
}
