package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnEngineIsATreeOfProcessesInOneSessionAndGroup(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"org/model", "-tp", "2"}}).ready()
	core := p.find("VLLM::EngineCore")
	for _, title := range []string{"VLLM::EngineCore", "VLLM::Worker_TP0", "VLLM::Worker_TP1"} {
		pid := p.find(title)
		group, err := syscall.Getpgid(pid)
		require.NoError(t, err)
		require.Equal(t, p.cmd.Process.Pid, group, title)
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		require.NoError(t, err)
		require.Equal(t, title[:min(15, len(title))], strings.TrimSpace(string(comm)))
	}
	require.Equal(t, p.cmd.Process.Pid, parent(t, core))
	require.Equal(t, core, parent(t, p.find("VLLM::Worker_TP1")))
	require.Len(t, p.processes(), 4)
}

func TestEachDataParallelReplicaHasAnEngineCore(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "-dp=2", "--pipeline_parallel_size", "2"}}).ready()
	for replica := range 2 {
		core := p.find(fmt.Sprintf("VLLM::EngineCore_DP%d", replica))
		children := 0
		for _, pid := range p.processes() {
			if parent(t, pid) == core {
				require.Contains(t, titleOf(pid), "VLLM::Worker_PP")
				children++
			}
		}
		require.Equal(t, 2, children)
	}
	metrics := p.ok("GET", "/metrics", "")
	require.Contains(t, metrics, `vllm:engine_sleep_state{engine="1",model_name="m",sleep_state="awake"} 1.0`)
}

func parent(t *testing.T, pid int) int {
	t.Helper()
	ppid, err := strconv.Atoi(statField(t, pid, 4))
	require.NoError(t, err)
	return ppid
}

// statField is a field of /proc/PID/stat by its number in proc_pid_stat(5), from 3 on.
func statField(t *testing.T, pid, number int) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	return strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))[number-3]
}

func TestThePortIsBoundButRefusesUntilTheModelIsLoaded(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--sim-hang-at-load=always"}})
	p.says("Starting to load model")
	_, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", p.port))
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	// Whoever does not say SO_REUSEADDR sees that it is bound.
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, syscall.Close(fd)) }()
	require.ErrorIs(t, syscall.Bind(fd, &syscall.SockaddrInet4{Port: p.port, Addr: [4]byte{127, 0, 0, 1}}), syscall.EADDRINUSE)
	require.False(t, p.ended())
}

func TestAStartThatFailsSaysWhyInTheWordsOfVLLM(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	taken := listener.Addr().(*net.TCPAddr).Port
	for name, c := range map[string]struct {
		setup setup
		code  int
		says  string
	}{
		"port taken":                {setup{args: []string{"m"}, port: taken}, 1, "OSError: [Errno 98] Address already in use"},
		"model folder missing":      {setup{args: []string{"/no/such/model"}}, 1, "HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/no/such/model'"},
		"unknown flag":              {setup{args: []string{"m", "--no-such-flag"}}, 2, "vllm: error: unrecognized arguments: --no-such-flag"},
		"number that is none":       {setup{args: []string{"m", "--max-num-seqs", "x"}}, 2, "vllm serve: error: argument --max-num-seqs: invalid int value: 'x'"},
		"fault that is none":        {setup{args: []string{"m", "--sim-crash-at-load=boom"}}, 2, "--sim-crash-at-load"},
		"fault in the environment":  {setup{args: []string{"m"}, env: []string{"ENGINESIM_LOAD_TIME=x"}}, 2, "ENGINESIM_LOAD_TIME"},
		"gated model":               {setup{args: []string{"org/gated", "--sim-gated"}}, 1, "Access to model org/gated is restricted"},
		"out of device memory":      {setup{args: []string{"m", "--sim-oom"}}, 1, "torch.OutOfMemoryError: CUDA out of memory."},
		"root cause":                {setup{args: []string{"m", "--sim-oom"}}, 1, "RuntimeError: Engine core initialization failed. See root cause above."},
		"sleep mode on a CPU":       {setup{args: []string{"m", "--enable-sleep-mode"}}, 1, "Sleep mode is not supported on current platform."},
		"context too long":          {setup{args: []string{"m", "--max-model-len", "100k"}}, 1, "User-specified max_model_len (100000) is greater than the derived max_model_len"},
		"no model for the options":  {setup{args: []string{"--served-model-name", "x"}}, 1, "`model` should be provided as the first positional argument"},
		"what the stand-in has not": {setup{args: []string{"m", "--ssl-keyfile", "k"}}, 2, "enginesim does not know --ssl-keyfile"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := launch(t, c.setup)
			require.Equal(t, c.code, p.exit())
			require.Contains(t, p.text(), c.says)
			require.Empty(t, p.processes())
		})
	}
}

func TestTheVersionIsThatOfVLLM(t *testing.T) {
	t.Parallel()
	p := command(t, setup{}, "--version")
	require.Zero(t, p.exit())
	require.Equal(t, "0.30.0\n", p.text())
}

func TestFaultsAreListed(t *testing.T) {
	t.Parallel()
	p := command(t, setup{}, "faults")
	require.Zero(t, p.exit())
	require.Contains(t, p.text(), "--sim-crash-at-load=CRASH  (ENGINESIM_CRASH_AT_LOAD)")
}

func TestAConfigFileStandsBelowTheCommandLine(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(file, []byte("served-model-name: [from-file, second]\nmax-model-len: 64\nsim-tokens: 2\n"), 0o600))
	p := launch(t, setup{args: []string{"m", "--max-model-len", "128", "--config", file}}).ready()
	models := p.ok("GET", "/v1/models", "")
	require.Contains(t, models, `"id":"from-file"`)
	require.Contains(t, models, `"id":"second"`)
	require.Contains(t, models, `"max_model_len":128`)
	text, finish := p.complete(`{"model":"second","prompt":"x"}`)
	require.True(t, strings.HasPrefix(text, "from-file "), text)
	require.Equal(t, "stop", finish)
}

func TestAFlagWinsOverTheEnvironment(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--sim-tokens", "3"}, env: []string{"ENGINESIM_TOKENS=5", "ENGINESIM_LOG_LINES=2"}}).ready()
	text, _ := p.complete(`{"prompt":"x"}`)
	require.Len(t, strings.Fields(text), 3)
	require.Contains(t, p.text(), "line 2 of 2")
}

func TestStampsAreWrittenByTheFirstProcessOfTheTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, ready := filepath.Join(dir, "first"), filepath.Join(dir, "ready")
	before := time.Now()
	p := launch(t, setup{
		args: []string{"m", "--sim-load-time=20ms"}, env: []string{"ENGINESIM_STAMP=" + first, "ENGINESIM_READY_STAMP=" + ready},
	}).ready()
	began, listened := readStamp(t, p, first), readStamp(t, p, ready)
	require.WithinRange(t, began, before, time.Now())
	require.WithinRange(t, listened, began.Add(20*time.Millisecond), time.Now())
}

func readStamp(t *testing.T, p *proc, file string) time.Time {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	fields := strings.Fields(string(data))
	require.Len(t, fields, 3)
	wall, err := strconv.ParseInt(fields[1], 10, 64)
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(p.cmd.Process.Pid), fields[2])
	return time.Unix(0, wall)
}

func TestASocketFileServesAsWell(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	p := launch(t, setup{args: []string{"m", "--uds", path}})
	eventually(t, "an open socket", func() bool {
		conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", path)
		return err == nil && conn.Close() == nil
	})
	p.signal(p.cmd.Process.Pid, syscall.SIGTERM)
	require.Zero(t, p.exit())
}

func TestOfTwoEnginesStartedOnOnePortOneServes(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	first := launch(t, setup{args: []string{"first", "--sim-load-time=3s"}, port: port})
	first.says("Starting to load model")
	second := launch(t, setup{args: []string{"second", "--sim-load-time=6s"}, port: port})
	first.says("Application startup complete")
	second.says("Application startup complete")
	require.Contains(t, first.ok("GET", "/v1/models", ""), `"id":"first"`)
	second.signal(second.cmd.Process.Pid, syscall.SIGTERM)
	require.Zero(t, second.exit())
}

func TestWithReusePortTwoEnginesShareAPortInSilence(t *testing.T) {
	t.Parallel()
	first := launch(t, setup{args: []string{"first", "--sim-reuse-port"}}).ready()
	second := launch(t, setup{args: []string{"second", "--sim-reuse-port"}, port: first.port})
	second.says("Application startup complete")
	seen := map[bool]bool{}
	eventually(t, "an answer of each", func() bool {
		seen[strings.Contains(first.ok("GET", "/v1/models", ""), `"id":"first"`)] = true
		return len(seen) == 2
	})
}
