package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSIGTERMEndsAnEngineAndItsTreeWithCode0(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := launch(t, setup{args: []string{"m", "-tp", "2"}, gpus: gpus(t, 2).Path()}).ready()
			p.signal(p.cmd.Process.Pid, sig)
			require.Zero(t, p.exit())
			require.Empty(t, p.processes())
			require.Contains(t, p.text(), "[shutdown] API server: shutdown triggered")
		})
	}
}

func TestSIGTERMToTheWholeGroupEndsItToo(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m"}}).ready()
	p.signal(-p.cmd.Process.Pid, syscall.SIGTERM)
	require.Zero(t, p.exit())
	require.Empty(t, p.processes())
}

func TestSIGTERMWhileAsleepEndsAnEngineWithRequestsQueued(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m"}, dev: true}).ready()
	p.ok("POST", "/sleep", "")
	s := p.open(`{"prompt":"x","stream":true}`)
	eventually(t, "the request", func() bool {
		return strings.Contains(p.ok("GET", "/metrics", ""), `waiting{engine="0",model_name="m"} 1.0`)
	})
	p.signal(p.cmd.Process.Pid, syscall.SIGTERM)
	require.Equal(t, []string{"[DONE]"}, s.rest())
	require.Zero(t, p.exit())
}

func TestSIGTERMWhileStartingLeavesAnEngineThatNeitherEndsNorIsReady(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--sim-load-time=300ms"}})
	p.says("Starting to load model")
	p.signal(p.cmd.Process.Pid, syscall.SIGTERM)
	p.says("init engine") // loaded all the same
	p.stays(300 * time.Millisecond)
	require.NotContains(t, p.text(), "Application startup complete")
	p.signal(p.cmd.Process.Pid, syscall.SIGKILL)
	require.Equal(t, -9, p.exit())
}

// stays sees that the engine does not end for a while. No bound makes sure that
// it never does.
func (p *proc) stays(d time.Duration) {
	p.t.Helper()
	select {
	case <-p.done:
		require.FailNow(p.t, "the engine ended", p.text())
	case <-time.After(d):
	}
}

func TestSIGTERMBeforeThereIsAHandlerEndsAnEngineAtOnce(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--sim-import-time=1h"}})
	eventually(t, "its first step", func() bool { return titleOf(p.cmd.Process.Pid) != "" })
	p.signal(p.cmd.Process.Pid, syscall.SIGTERM)
	require.Equal(t, -15, p.exit())
}

func TestAnEngineCanIgnoreSIGTERMForGood(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--sim-ignore-term"}})
	p.says("Initializing a V1 LLM engine") // it knows by then
	p.signal(p.find("VLLM::EngineCore"), syscall.SIGTERM)
	p.ready()
	for _, pid := range p.processes() {
		p.signal(pid, syscall.SIGTERM)
		p.signal(pid, syscall.SIGINT)
	}
	p.stays(200 * time.Millisecond)
	p.ok("GET", "/health", "")
	require.Len(t, p.processes(), 3)
}

func TestSIGTERMAbortsAStreamInFlight(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--sim-token-time=20ms"}}).ready()
	s := p.open(`{"prompt":"x","max_tokens":4000,"ignore_eos":true,"stream":true}`)
	s.next()
	p.signal(p.cmd.Process.Pid, syscall.SIGTERM)
	rest := s.rest()
	require.Contains(t, rest[len(rest)-2], `"finish_reason":"abort"`)
	require.Equal(t, "[DONE]", rest[len(rest)-1])
	require.Zero(t, p.exit())
}

func TestAShutdownTimeoutLetsAStreamEndWhole(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--sim-token-time=20ms", "--shutdown-timeout", "60"}}).ready()
	s := p.open(`{"prompt":"x","max_tokens":20,"ignore_eos":true,"stream":true}`)
	s.next()
	p.signal(p.cmd.Process.Pid, syscall.SIGTERM)
	p.says("mode=drain")
	p.ok("GET", "/health", "")
	rest := s.rest()
	require.Contains(t, rest[len(rest)-2], `"finish_reason":"length"`)
	require.Zero(t, p.exit())
}

func TestAnEngineCanWaitAtSIGTERMForClientsThatGetNothingMore(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--sim-token-time=20ms", "--sim-term-waits"}}).ready()
	s := p.open(`{"prompt":"x","max_tokens":4000,"ignore_eos":true,"stream":true}`)
	s.next()
	p.signal(p.cmd.Process.Pid, syscall.SIGTERM)
	eventually(t, "a refused port", func() bool {
		_, err := p.try("GET", "/health", "")
		return err != nil
	})
	eventually(t, "the end of the workers", func() bool { return len(p.processes()) == 1 })
	p.stays(100 * time.Millisecond)
	s.leave()
	require.Zero(t, p.exit())
}

func TestADeadWorkerEndsTheEngineWithCode0(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		title string
		sig   syscall.Signal
		says  string
	}{
		{"VLLM::Worker", syscall.SIGKILL, "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor."},
		{"VLLM::Worker", syscall.SIGTERM, "Worker proc VllmWorker-0 died unexpectedly (exit code: 0), shutting down executor."},
		{"VLLM::EngineCore", syscall.SIGKILL, "EngineDeadError: EngineCore encountered an issue."},
		{"VLLM::EngineCore", syscall.SIGTERM, "EngineDeadError: EngineCore encountered an issue."},
	} {
		t.Run(fmt.Sprintf("%s %s", c.title, c.sig), func(t *testing.T) {
			t.Parallel()
			p := launch(t, setup{args: []string{"m", "--sim-dead-delay=1s", "--sim-token-time=20ms"}, dev: true}).ready()
			s := p.open(`{"prompt":"x","max_tokens":4000,"ignore_eos":true,"stream":true}`)
			s.next()
			var whole answer
			var asked sync.WaitGroup
			asked.Go(func() {
				whole, _ = p.try("POST", "/v1/completions", `{"prompt":"x","max_tokens":4000,"ignore_eos":true}`)
			})
			eventually(t, "two requests", func() bool {
				return strings.Contains(p.ok("GET", "/metrics", ""), `running{engine="0",model_name="m"} 2.0`)
			})
			p.signal(p.find(c.title), c.sig)
			rest := s.rest()
			require.Equal(t, `{"error": {"message": "EngineCore encountered an issue. See stack trace (above) for the root cause.", "type": "InternalServerError", "param": null, "code": 500}}`, rest[len(rest)-2])
			asked.Wait()
			require.Equal(t, http.StatusInternalServerError, whole.status)
			require.Equal(t, `{"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause.","type":"InternalServerError","param":null,"code":500}}`, whole.body)
			require.Equal(t, http.StatusServiceUnavailable, p.call("GET", "/health", "").status)
			require.Equal(t, http.StatusInternalServerError, p.call("POST", "/wake_up", "").status)
			require.Zero(t, p.exit())
			require.Contains(t, p.text(), c.says)
			eventually(t, "nothing left", func() bool { return len(p.processes()) == 0 })
		})
	}
}

func TestHealthCanLieUntilTheEnd(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--sim-health-lies", "--sim-dead-delay=1s"}}).ready()
	p.signal(p.find("VLLM::EngineCore"), syscall.SIGKILL)
	p.says("EngineDeadError")
	p.ok("GET", "/health", "")
	require.Zero(t, p.exit())
}

func TestAKilledAPIServerLeavesOrphansThatHoldTheGPU(t *testing.T) {
	t.Parallel()
	dir := gpus(t, 1)
	p := launch(t, setup{args: []string{"m"}, gpus: dir.Path()}).ready()
	core, worker := p.find("VLLM::EngineCore"), p.find("VLLM::Worker")
	p.signal(p.cmd.Process.Pid, syscall.SIGKILL)
	require.Equal(t, -9, p.exit())
	require.Never(t, func() bool { return len(p.processes()) != 2 }, 300*time.Millisecond, 20*time.Millisecond)
	require.NotEqual(t, p.cmd.Process.Pid, parent(t, core))
	require.NotZero(t, used(t, dir, "GPU-0"))
	p.signal(core, syscall.SIGKILL)
	eventually(t, "the worker to follow EngineCore", func() bool { return titleOf(worker) == "" })
	require.Zero(t, used(t, dir, "GPU-0"))
}
