package main

import (
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sleepState is what the engine says of itself: is_sleeping, and the three
// values of the metric (awake, weights offloaded, all discarded).
func (p *proc) sleepState() string {
	p.t.Helper()
	state := strings.TrimSuffix(strings.TrimPrefix(p.ok("GET", "/is_sleeping", ""), `{"is_sleeping":`), "}")
	for line := range strings.Lines(p.ok("GET", "/metrics", "")) {
		if strings.HasPrefix(line, "vllm:engine_sleep_state{") {
			state += " " + strings.TrimSuffix(strings.TrimSpace(line[strings.LastIndex(line, " "):]), ".0")
		}
	}
	return state
}

// The states are those that vLLM 0.30 was seen to give after the same calls.
func TestSleepAndWakeGoThroughTheStatesOfVLLM(t *testing.T) {
	t.Parallel()
	const awake = "false 1 0 0"
	for name, steps := range map[string][][2]string{
		"level 1, twice each":     {{"/sleep?level=1", "true 0 1 0"}, {"/sleep?level=1", "true 0 1 0"}, {"/wake_up", awake}, {"/wake_up", awake}},
		"no level is level 1":     {{"/sleep", "true 0 1 0"}, {"/wake_up", awake}},
		"level 2 by tags":         {{"/sleep?level=2", "true 0 0 1"}, {"/wake_up?tags=weights", "true 1 0 0"}, {"/wake_up?tags=kv_cache", awake}},
		"level 1 by tags":         {{"/sleep?level=1", "true 0 1 0"}, {"/wake_up?tags=kv_cache", "true 1 0 0"}, {"/wake_up?tags=weights", awake}},
		"two tags at once":        {{"/sleep?level=2", "true 0 0 1"}, {"/wake_up?tags=weights&tags=kv_cache", awake}},
		"level 0 pauses only":     {{"/sleep?level=0", "true 0 0 0"}, {"/wake_up", awake}},
		"level 3 is taken":        {{"/sleep?level=3", "true 0 0 0"}, {"/wake_up", awake}},
		"level -1 is taken":       {{"/sleep?level=-1", "true 0 0 0"}, {"/wake_up", awake}},
		"a tag that is none":      {{"/wake_up?tags=bogus", awake}, {"/sleep?level=1", "true 0 1 0"}, {"/wake_up?tags=bogus", "true 1 0 0"}, {"/wake_up", awake}},
		"a deeper level asleep":   {{"/sleep?level=1", "true 0 1 0"}, {"/sleep?level=2", "true 0 0 1"}, {"/wake_up", awake}},
		"waiting and keeping":     {{"/sleep?mode=wait", "true 0 1 0"}, {"/wake_up", awake}, {"/sleep?mode=keep", "true 0 1 0"}, {"/wake_up", awake}},
		"a pause looks as asleep": {{"/pause", "true 1 0 0"}, {"/resume", awake}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := launch(t, setup{args: []string{"m"}, dev: true}).ready()
			require.Equal(t, awake, p.sleepState())
			for _, step := range steps {
				p.ok("POST", step[0], "")
				require.Equal(t, step[1], p.sleepState(), step[0])
				p.ok("GET", "/health", "")
			}
		})
	}
}

func TestARequestWhileAsleepWaitsForTheWake(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m"}, dev: true}).ready()
	p.ok("POST", "/sleep", "")
	answered := make(chan answer, 1)
	go func() {
		a, _ := p.try("POST", "/v1/completions", `{"prompt":"x","max_tokens":1}`)
		answered <- a
	}()
	eventually(t, "the request", func() bool {
		return strings.Contains(p.ok("GET", "/metrics", ""), `waiting{engine="0",model_name="m"} 1.0`)
	})
	p.ok("POST", "/wake_up", "")
	a := <-answered
	require.Equal(t, http.StatusOK, a.status, a.body)
}

func TestARequestInFlightMeetsASleep(t *testing.T) {
	t.Parallel()
	const whole = 40
	ask := `{"prompt":"x","max_tokens":40,"ignore_eos":true}`
	for mode, want := range map[string]string{"": "abort", "&mode=abort": "abort", "&mode=wait": "length", "&mode=keep": "length"} {
		t.Run("mode "+mode, func(t *testing.T) {
			t.Parallel()
			p := launch(t, setup{args: []string{"m", "--sim-token-time=20ms"}, dev: true}).ready()
			var got answer
			var asked sync.WaitGroup
			asked.Go(func() { got, _ = p.try("POST", "/v1/completions", ask) })
			eventually(t, "the request to run", func() bool {
				return strings.Contains(p.ok("GET", "/metrics", ""), `running{engine="0",model_name="m"} 1.0`)
			})
			p.ok("POST", "/sleep?level=1"+mode, "")
			running := strings.Contains(p.ok("GET", "/metrics", ""), `running{engine="0",model_name="m"} 1.0`)
			require.Equal(t, strings.HasSuffix(mode, "keep"), running, "only keep leaves a request standing")
			p.ok("POST", "/wake_up", "")
			asked.Wait()
			require.Equal(t, http.StatusOK, got.status)
			text, finish := completion(t, got.body)
			require.Equal(t, want, finish)
			require.Equal(t, want == "length", len(strings.Fields(text)) == whole)
		})
	}
}

func TestWithoutReloadedWeightsALevel2WakeAnswersNonsense(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--sim-weights-bytes=1MiB"}, dev: true}).ready()
	sane, _ := p.complete(`{"prompt":"x","max_tokens":4}`)
	p.ok("POST", "/sleep?level=2", "")
	p.ok("POST", "/wake_up", "")
	garbled, _ := p.complete(`{"prompt":"x","max_tokens":4}`)
	require.Equal(t, "!!!!", garbled)
	p.ok("POST", "/sleep?level=1", "")
	p.ok("POST", "/wake_up", "")
	garbled, _ = p.complete(`{"prompt":"x","max_tokens":4}`)
	require.Equal(t, "!!!!", garbled, "a sleep at level 1 does not mend it")
	p.ok("POST", "/sleep?level=2", "")
	p.ok("POST", "/wake_up?tags=weights", "")
	require.Equal(t, `{"results":[null]}`, p.ok("POST", "/collective_rpc", `{"method":"reload_weights"}`))
	p.ok("POST", "/wake_up?tags=kv_cache", "")
	require.Equal(t, `{"success":true}`, p.ok("POST", "/reset_prefix_cache", ""))
	mended, _ := p.complete(`{"prompt":"x","max_tokens":4}`)
	require.Equal(t, sane, mended)
}

func TestSleepAndWakeTakeTheirTime(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--sim-sleep-time=150ms", "--sim-wake-time=100ms"}, dev: true}).ready()
	began := time.Now()
	p.ok("POST", "/sleep", "")
	require.GreaterOrEqual(t, time.Since(began), 150*time.Millisecond)
	began = time.Now()
	p.ok("POST", "/wake_up", "")
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)
}

func TestAnEngineWhoseCoreStandsStillHangsButIsHealthy(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m"}, dev: true}).ready()
	core := p.find("VLLM::EngineCore")
	p.signal(core, syscall.SIGSTOP)
	eventually(t, "the core stands still", func() bool { return statField(t, core, 3) == "T" })
	p.ok("GET", "/health", "")
	for path, method := range map[string]string{"/sleep": "POST", "/is_sleeping": "GET", "/v1/completions": "POST"} {
		body := ""
		if method == "POST" {
			body = `{"prompt":"x"}`
		}
		_, err := p.tryFor(100*time.Millisecond, method, path, body)
		require.Error(t, err, path)
	}
	p.signal(core, syscall.SIGCONT)
	p.ok("GET", "/is_sleeping", "")
}
