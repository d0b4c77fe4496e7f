package conformance

import (
	"bufio"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Bodies of requests.
const (
	complete = `{"model":"tiny-a","prompt":"The quick brown fox","max_tokens":8,"temperature":0,"ignore_eos":true}`
	stream   = `{"model":"tiny-a","prompt":"The quick brown fox","max_tokens":8,"temperature":0,"ignore_eos":true,"stream":true}`
	// of a stream that lasts a while, and ends by itself
	longStream = `{"model":"tiny-a","prompt":"The quick brown fox","max_tokens":240,"temperature":0,"ignore_eos":true,"stream":true}`
	// of answers that last for minutes
	endlessComplete = `{"model":"tiny-a","prompt":"The quick brown fox","max_tokens":60000,"temperature":0,"ignore_eos":true}`
	endlessStream   = `{"model":"tiny-a","prompt":"The quick brown fox","max_tokens":60000,"temperature":0,"ignore_eos":true,"stream":true}`
)

// chat is the body of a chat with further fields.
func chat(fields string) string {
	return `{"model":"tiny-a","messages":[{"role":"user","content":"The quick brown fox"}],"temperature":0,"ignore_eos":true` + fields + `}`
}

// The requests that many steps make.
func get(name, path string) step { return step{name: name, method: "GET", path: path} }
func post(name, path, body string) step {
	return step{name: name, method: "POST", path: path, body: body}
}
func completion(name, body string) step { return post(name, "/v1/completions", body) }
func chatting(name, body string) step   { return post(name, "/v1/chat/completions", body) }
func isSleeping(name string) step       { return get(name, "/is_sleeping") }
func sleepState(name string) step {
	s := get(name, "/metrics")
	s.metrics.samples = "vllm:engine_sleep_state"
	return s
}

// converse takes every step in order.
func (e *engine) converse(steps []step) []exchange {
	e.t.Helper()
	var seen []exchange
	for _, s := range steps {
		if s.meanwhile == nil {
			seen = append(seen, e.take(s))
		} else {
			seen = append(seen, e.overlap(s))
		}
	}
	return seen
}

// firstEvents of a stream are awaited before anything happens to it.
const firstEvents = 4

// overlap takes the steps meanwhile while the answer to s is on its way.
func (e *engine) overlap(s step) exchange {
	e.t.Helper()
	var x exchange
	var body io.ReadCloser
	var answered chan struct{}
	var asking sync.WaitGroup
	defer asking.Wait()
	ask := func() {
		answered = make(chan struct{})
		asking.Go(func() {
			defer close(answered)
			x, body = e.open(s)
		})
	}
	ask()
	var reader *bufio.Reader
	switch s.begun {
	case streaming:
		<-answered
		if body != nil {
			reader = bufio.NewReader(body)
			x = e.events(x, reader, firstEvents)
		}
	case running:
		e.eventually("a request runs", func() bool {
			select {
			case <-answered: // before anybody could see that it runs
				require.NotNil(e.t, body, s.name)
				require.NoError(e.t, body.Close())
				ask()
			default:
			}
			return e.runs()
		})
	case held:
		select {
		case <-answered:
			require.Fail(e.t, "it was answered at once", s.name)
		case <-time.After(500 * time.Millisecond):
		}
	}
	meanwhile := e.converse(s.meanwhile)
	<-answered
	if body == nil {
		require.FailNow(e.t, "it was not answered", s.name)
	}
	defer body.Close()
	if reader == nil {
		reader = bufio.NewReader(body)
	}
	x = e.read(s, x, reader)
	x.Meanwhile = meanwhile
	return x
}

// runs says whether the engine works on a request.
func (e *engine) runs() bool {
	const family = "vllm:num_requests_running"
	x := e.take(step{name: "running", method: "GET", path: "/metrics", metrics: metrics{samples: family}})
	samples := x.Body.(map[string]any)["samples"].(map[string]any)
	return samples[family+`{engine="0",model_name="tiny-a"}`] != "0.0"
}

// conversation is what every engine is asked that has the developer endpoints.
func conversation() []step {
	var all []step
	for _, part := range [][]step{plainSteps(), answerSteps(), refusedSteps(), sleepSteps()} {
		all = append(all, part...)
	}
	return all
}

func TestNoTwoStepsHaveOneName(t *testing.T) {
	seen := map[string]bool{}
	var check func(steps []step)
	check = func(steps []step) {
		for _, s := range steps {
			require.False(t, seen[s.name], "%q", s.name)
			seen[s.name] = true
			check(s.meanwhile)
		}
	}
	check(conversation())
	check(inFlightSteps())
}
