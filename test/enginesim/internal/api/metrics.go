package api

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// counts are what the engine has done so far.
type counts struct {
	mu        sync.Mutex
	prompt    int
	generated int
	byFinish  map[string]int
}

func (c *counts) add(promptTokens int, o outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byFinish == nil {
		c.byFinish = map[string]int{}
	}
	c.prompt += promptTokens
	c.generated += o.tokens
	c.byFinish[o.finish]++
}

// sample is one line of a metric: further labels and the value.
type sample struct {
	labels string // such as `,reason="x"`
	value  float64
}

// metrics writes the metrics that users of vLLM look at, in Prometheus' text
// format.
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	st := s.opts.Engine.State()
	s.counts.mu.Lock()
	prompt, generated := float64(s.counts.prompt), float64(s.counts.generated)
	finished := make([]sample, 0, 5)
	for _, reason := range []string{"stop", "length", "abort", "error", "repetition"} {
		finished = append(finished, sample{`,finished_reason="` + reason + `"`, float64(s.counts.byFinish[reason])})
	}
	s.counts.mu.Unlock()
	var b strings.Builder
	one := func(v float64) []sample { return []sample{{"", v}} }
	s.family(&b, "gauge", "num_requests_running", "Number of requests in model execution batches.", one(float64(st.Running)))
	s.family(&b, "gauge", "num_requests_waiting", "Number of requests waiting to be processed.", one(float64(st.Waiting)))
	s.family(&b, "gauge", "engine_sleep_state", "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.", []sample{
		{`,sleep_state="awake"`, truth(st.MetricAwake)},
		{`,sleep_state="weights_offloaded"`, truth(!st.MetricAwake && st.MetricLevel == 1)},
		{`,sleep_state="discard_all"`, truth(!st.MetricAwake && st.MetricLevel == 2)},
	})
	s.family(&b, "gauge", "kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", one(0))
	s.family(&b, "counter", "num_preemptions_total", "Cumulative number of preemption from the engine.", one(0))
	s.family(&b, "counter", "prompt_tokens_total", "Number of prefill tokens processed.", one(prompt))
	s.family(&b, "counter", "generation_tokens_total", "Number of generation tokens processed.", one(generated))
	s.family(&b, "counter", "request_success_total", "Count of successfully processed requests.", finished)
	w.Header().Set("Content-Type", "text/plain; version=1.0.0; charset=utf-8")
	w.Header().Set("Content-Length", fmt.Sprint(b.Len()))
	w.WriteHeader(http.StatusOK)
	// A client that went away needs no answer.
	_, _ = w.Write([]byte(b.String()))
}

// family writes one metric. What is counted for the whole server is put down to
// the first replica; gauges of the state are those of each.
func (s *Server) family(b *strings.Builder, kind, name, help string, samples []sample) {
	fmt.Fprintf(b, "# HELP vllm:%s %s\n# TYPE vllm:%s %s\n", name, help, name, kind)
	for _, sm := range samples {
		for replica := range s.opts.Replicas {
			value := sm.value
			if replica > 0 && name != "engine_sleep_state" {
				value = 0
			}
			fmt.Fprintf(b, "vllm:%s{engine=\"%d\",model_name=\"%s\"%s} %.1f\n", name, replica, escape(s.opts.Names[0]), sm.labels, value)
		}
	}
}

func escape(label string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(label)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
