package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestACrashEndsTheAPIServerTheWayItWasToldTo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault string
		verb  string // call that sets it off; "" when it comes by itself
		code  int
		left  int // processes that outlive it
	}{
		"at load by code":          {"--sim-crash-at-load=exit:3", "", 3, 0},
		"at load by a worker":      {"--sim-crash-at-load=worker:exit:3", "", 1, 0},
		"at load by EngineCore":    {"--sim-crash-at-load=core:signal:KILL", "", 1, 0},
		"when ready by code":       {"--sim-crash-at-ready=exit:7@50ms", "", 7, 0},
		"when ready by signal":     {"--sim-crash-at-ready=signal:SEGV@50ms", "", -11, 2},
		"when ready by a worker":   {"--sim-crash-at-ready=worker:signal:ABRT@50ms", "", 0, 0},
		"when ready by EngineCore": {"--sim-crash-at-ready=core:exit:5@50ms", "", 0, 0},
		"at sleep by code":         {"--sim-crash-at-sleep=exit:4", "/sleep", 4, 0},
		"at sleep by a worker":     {"--sim-crash-at-sleep=worker:signal:SEGV", "/sleep", 0, 0},
		"at sleep by EngineCore":   {"--sim-crash-at-sleep=core:exit:1", "/sleep", 0, 0},
		"at wake by signal":        {"--sim-crash-at-wake=signal:KILL", "/wake_up", -9, 2},
		"at wake by a worker":      {"--sim-crash-at-wake=worker:exit:1", "/wake_up", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := gpus(t, 1)
			p := launch(t, setup{args: []string{"m", c.fault}, gpus: dir.Path(), dev: true})
			if c.verb != "" {
				p.ready()
				if c.verb == "/wake_up" {
					p.ok("POST", "/sleep", "")
				}
				if a, err := p.try("POST", c.verb, ""); err == nil {
					require.Equal(t, http.StatusInternalServerError, a.status)
					require.Contains(t, a.body, "EngineCore encountered an issue")
				}
			}
			require.Equal(t, c.code, p.exit())
			eventually(t, "the rest to end", func() bool { return len(p.processes()) == c.left })
			if c.left == 0 {
				require.Zero(t, used(t, dir, "GPU-0"))
			}
		})
	}
}

func TestACrashCanComeInTheMiddleOfALoad(t *testing.T) {
	t.Parallel()
	for fault, code := range map[string]int{"exit:3@100ms": 3, "signal:KILL@100ms": -9} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			p := launch(t, setup{args: []string{"m", "--sim-load-time=1h", "--sim-crash-at-load=" + fault}})
			require.Equal(t, code, p.exit())
			if code > 0 {
				require.Empty(t, p.processes(), "an exit by code takes the tree along")
			}
		})
	}
}

func TestAFaultOfASharedFileHitsOnce(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "once")
	s := setup{args: []string{"m", "--sim-crash-at-load=exit:3", "--sim-once-file=" + file}}
	require.Equal(t, 3, launch(t, s).exit())
	launch(t, s).ready()
	file = filepath.Join(t.TempDir(), "once")
	s = setup{args: []string{"m", "--sim-hang-at-load=1", "--sim-once-file=" + file}}
	launch(t, s).says("Starting to load")
	eventually(t, "the hang", func() bool { _, err := os.Stat(file); return err == nil })
	launch(t, s).ready()
}

func TestSleepAndWakeFailOrHangAsOftenAsTold(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--sim-fail-sleep=1", "--sim-fail-wake=2", "--sim-hang-at-sleep=1", "--sim-hang-at-wake=1"}, dev: true}).ready()
	hang := func(path string) {
		_, err := p.tryFor(100*time.Millisecond, "POST", path, "")
		require.Error(t, err)
	}
	fails := func(path string) {
		a := p.call("POST", path, "")
		require.Equal(t, http.StatusInternalServerError, a.status)
		require.Contains(t, a.body, "simulated failure")
	}
	hang("/sleep")
	fails("/sleep")
	require.Equal(t, "false 1 0 0", p.sleepState())
	p.ok("POST", "/sleep", "")
	hang("/wake_up")
	fails("/wake_up")
	fails("/wake_up")
	require.Equal(t, "true 0 1 0", p.sleepState())
	p.ok("POST", "/wake_up", "")
}

func TestWakesFailInPartAsOftenAsTold(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--sim-hang-at-reload=1", "--sim-fail-reload=1", "--sim-fail-wake-in-part=1"}, dev: true}).ready()
	reload := `{"method":"reload_weights"}`
	p.ok("POST", "/sleep", "")
	require.Equal(t, http.StatusInternalServerError, p.call("POST", "/wake_up", "").status)
	require.Equal(t, "true 1 0 0", p.sleepState(), "only the KV cache sleeps")
	p.ok("POST", "/sleep", "")
	p.ok("POST", "/wake_up?tags=kv_cache", "")
	require.Equal(t, "false 1 0 0", p.sleepState(), "that sleep did nothing")
	_, err := p.tryFor(100*time.Millisecond, "POST", "/collective_rpc", reload)
	require.Error(t, err)
	require.Equal(t, http.StatusInternalServerError, p.call("POST", "/collective_rpc", reload).status)
	p.ok("POST", "/collective_rpc", reload)
}

func TestWakesSpoilTheAnswersAsOftenAsTold(t *testing.T) {
	t.Parallel()
	const body = `{"prompt":"x","max_tokens":1}`
	p := launch(t, setup{args: []string{"m", "--sim-garbled-after-wake=1", "--sim-mute-after-wake=1"}, dev: true}).ready()
	before, _ := p.complete(body)
	p.ok("POST", "/sleep?level=2", "")
	p.ok("POST", "/wake_up?tags=weights", "")
	p.ok("POST", "/collective_rpc", `{"method":"reload_weights"}`)
	p.ok("POST", "/wake_up?tags=kv_cache", "")
	_, err := p.tryFor(100*time.Millisecond, "POST", "/v1/completions", body)
	require.Error(t, err, "it answers nothing")
	p.ok("GET", "/health", "")
	p.ok("POST", "/sleep", "")

	p = launch(t, setup{args: []string{"m", "--sim-garbled-after-wake=1"}, dev: true}).ready()
	p.ok("POST", "/sleep", "")
	p.ok("POST", "/wake_up", "")
	after, _ := p.complete(body)
	require.NotEqual(t, before, after)
	p.ok("GET", "/health", "")
}

func TestHealthHangsAsOftenAsTold(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--sim-hang-at-health=1"}})
	p.says("Application startup complete")
	_, err := p.tryFor(100*time.Millisecond, "GET", "/health", "")
	require.Error(t, err)
	p.ok("GET", "/health", "")
}

func TestAStrayWorkerLeavesAndStays(t *testing.T) {
	t.Parallel()
	for how, c := range map[string]struct{ ownGroup, ownSession, orphan bool }{
		"group":       {true, false, false},
		"session":     {true, true, false},
		"double-fork": {true, true, true},
	} {
		for _, env := range []string{"keep", "clear"} {
			t.Run(how+" "+env, func(t *testing.T) {
				t.Parallel()
				dir := gpus(t, 1)
				p := launch(t, setup{args: []string{"m", "--gpu-memory-utilization=0.5", "--sim-stray=" + how, "--sim-stray-env=" + env, "--sim-stray-bytes=1GiB"}, gpus: dir.Path()}).ready()
				stray := p.find("VLLM::Stray")
				group, err := syscall.Getpgid(stray)
				require.NoError(t, err)
				session, err := unix.Getsid(stray)
				require.NoError(t, err)
				require.Equal(t, c.ownGroup, group != p.cmd.Process.Pid)
				require.Equal(t, c.ownSession, session != p.cmd.Process.Pid)
				require.Equal(t, c.orphan, parent(t, stray) != p.find("VLLM::EngineCore"))
				environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", stray))
				require.NoError(t, err)
				require.Equal(t, env == "clear", len(environment) == 0)
				p.signal(p.cmd.Process.Pid, syscall.SIGTERM)
				require.Zero(t, p.exit())
				p.signal(stray, syscall.SIGTERM)
				require.Never(t, func() bool { return !slices.Equal(p.processes(), []int{stray}) }, 100*time.Millisecond, 10*time.Millisecond)
				require.Equal(t, uint64(gib), used(t, dir, "GPU-0"))
			})
		}
	}
}

func TestTheLogCanBeLongAndNotUTF8(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--sim-log-lines=1000", "--sim-log-not-utf8=3", "--sim-log-long-line=1MiB"}}).ready()
	text := p.text()
	require.Contains(t, text, "line 1000 of 1000")
	require.Equal(t, 3, strings.Count(text, "\xff\xfe\x80"))
	require.Contains(t, text, "\n"+strings.Repeat("x", 1<<20)+"\n")
}
