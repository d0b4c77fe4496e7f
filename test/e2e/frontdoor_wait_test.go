package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// modelText describes a model of a configuration file whose engine is the stand-in.
func modelText(name, fields string, args ...string) string {
	return fmt.Sprintf("- {name: %s, gpus: 1, %s options: \"%s\"}\n", name, fields, strings.Join(append([]string{name, "--served-model-name", name}, args...), " "))
}

// demand returns what the front door says of a model.
func (n *Node) demand(model string) launcherapi.FrontDoorModel {
	n.t.Helper()
	var door launcherapi.FrontDoor
	n.Call("GET", "/v2/front-door", nil).Into(n.t, &door)
	for _, m := range door.Models {
		if m.Names[0] == model {
			return m
		}
	}
	return launcherapi.FrontDoorModel{}
}

// metric returns a line of the launcher's metrics without its value; empty: there is none.
func (n *Node) metric(series string) string {
	n.t.Helper()
	for line := range strings.SplitSeq(string(call(n.t, "GET", n.URL+"/metrics", nil).Body), "\n") {
		if value, found := strings.CutPrefix(line, series+" "); found {
			return value
		}
	}
	return ""
}

// Row 7: a hundred requests for a model without an engine start one engine, and all are answered.
func TestHundredRequestsForColdModelStartOneEngine(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", ""))
	var all sync.WaitGroup
	status := make([]int, 100)
	for k := range status {
		all.Go(func() {
			got, err := tryCall(t.Context(), "POST", url+"/v1/completions", question("a"))
			if assert.NoError(t, err) {
				status[k] = got.Status
			}
		})
	}
	all.Wait()
	for _, s := range status {
		assert.Equal(t, 200, s)
	}
	assert.Equal(t, `1`, n.metric(`hotseat_starts_total{by="exec",fell_back="false"}`))
	assert.Equal(t, `100`, n.metric(`hotseat_front_door_requests_total{outcome="answered"}`))
	assert.Equal(t, `1`, n.metric(`hotseat_front_door_transitions_total{kind="start",outcome="done"}`))
}

// keepWaiting sends a request that waits for a model that never becomes ready, and leaves when leave is
// called.
func keepWaiting(t *testing.T, n *Node, url, model string, body func() io.Reader) (leave func()) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	before := n.demand(model).Waiting
	req, err := http.NewRequest(http.MethodPost, url+"/v1/completions", body())
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	sent := make(chan error, 1)
	go func() { sent <- req.Write(conn) }()
	n.Eventually("the request waits", func() bool { return n.demand(model).Waiting == before+1 })
	return func() {
		require.NoError(t, conn.Close())
		t.Log("the request was sent:", <-sent)
	}
}

// Row 8: a client that leaves while it waits frees its place, whatever its body is.
func TestClientThatLeavesFreesItsPlaceWithAnyBody(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", "", "--sim-hang-at-load", "1"))
	text := func(size int) string { return `{"model":"a","prompt":"` + strings.Repeat("x", size) + `"}` }
	for name, body := range map[string]func() io.Reader{
		"small":   func() io.Reader { return strings.NewReader(text(10)) },
		"chunked": func() io.Reader { return io.MultiReader(strings.NewReader(text(10))) },
		"5 MiB":   func() io.Reader { return strings.NewReader(text(5 << 20)) },
	} {
		leave := keepWaiting(t, n, url, "a", body)
		leave()
		n.Eventually("the place is free: "+name, func() bool { return n.demand("a").Waiting == 0 })
	}
	n.Eventually("all are counted", func() bool { return n.metric(`hotseat_front_door_requests_total{outcome="client_gone"}`) == "3" })
}

// Row 8: a full queue is 429, and a wait that is too long is 503, each with Retry-After.
func TestFrontDoorBoundsTheWait(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", "", "--sim-hang-at-load", "1"), "--max-held-requests", "2", "--hold-timeout", "2s", "--start-timeout", "1h")
	leave := keepWaiting(t, n, url, "a", func() io.Reader { return strings.NewReader(`{"model":"a"}`) })
	defer leave()
	second := keepWaiting(t, n, url, "a", func() io.Reader { return strings.NewReader(`{"model":"a"}`) })
	defer second()
	full := ask(t, url, "a")
	assert.Equal(t, 429, full.Status)
	assert.NotEmpty(t, full.Header.Get("Retry-After"))
	assert.Equal(t, "rate_limit_error", refusal(t, full).Type)
	assert.Equal(t, "1", n.metric(`hotseat_front_door_requests_total{outcome="queue_full"}`))
	assert.Equal(t, "2", n.metric(`hotseat_front_door_requests_waiting{model="a"}`))
}

// Rows 8 and 12: a request for a sleeper waits as long as --hold-timeout; a request for a model
// that has to start waits as long as a start may take.
func TestFrontDoorWaitsForAStartLongerThanForAWake(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("slow", "", "--sim-load-time", "3s")+modelText("a", "", "--sim-hang-at-wake", "1"), "--hold-timeout", "1s", "--gpus", "simulated:1")
	require.Equal(t, 200, ask(t, url, "a").Status)
	assert.Equal(t, 200, ask(t, url, "slow").Status, "its start takes longer than --hold-timeout")
	late := ask(t, url, "a")
	assert.Equal(t, 503, late.Status, "%s", late.Body)
	assert.NotEmpty(t, late.Header.Get("Retry-After"))
	assert.Contains(t, refusal(t, late).Message, "waited too long")
	assert.Equal(t, "1", n.metric(`hotseat_front_door_requests_total{outcome="timeout"}`))
}

// doorStream begins a stream of a chat, and returns its answer with the lines of its body.
func doorStream(ctx context.Context, t *testing.T, url, model string, headers ...string) (*http.Response, *bufio.Scanner) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"model": model, "stream": true, "messages": []any{map[string]string{"role": "user", "content": "hello"}}})
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(string(body)))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	for k := 0; k+1 < len(headers); k += 2 {
		req.Header.Set(headers[k], headers[k+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp, bufio.NewScanner(resp.Body)
}

// linesOf returns the lines of a stream that are not empty.
func linesOf(t *testing.T, lines *bufio.Scanner) (all []string) {
	t.Helper()
	for lines.Scan() {
		if lines.Text() != "" {
			all = append(all, lines.Text())
		}
	}
	require.NoError(t, lines.Err())
	return all
}

// Row 10: a stream that waits gets signs of life where its client asks for them, and then the
// engine's answer.
func TestStreamThatWaitsGetsSignsOfLife(t *testing.T) {
	t.Parallel()
	for progress, sign := range map[string]string{"comments": `^: waiting for a `, "reasoning": `^data: .*"reasoning_content":"waiting for a `, "": `^data: `} {
		t.Run("progress "+progress, func(t *testing.T) {
			t.Parallel()
			_, url := offer(t, "models:\n"+modelText("a", "", "--sim-load-time", "7s"))
			resp, lines := doorStream(t.Context(), t, url, "a", "X-Hotseat-Progress", progress)
			require.Equal(t, 200, resp.StatusCode)
			assert.Contains(t, resp.Header.Get("Content-Type"), "text/event-stream")
			all := linesOf(t, lines)
			assert.Regexp(t, sign, all[0])
			assert.Equal(t, progress != "", strings.Contains(strings.Join(all, "\n"), "waiting for a"))
			assert.Equal(t, "data: [DONE]", all[len(all)-1])
		})
	}
}

// failAfterSigns asks for a stream of a model by the APIs of OpenAI and Anthropic, with signs of
// life, and checks that each ends with an error event. It returns the events' messages.
func failAfterSigns(t *testing.T, url, model string) (messages []string) {
	t.Helper()
	chat := map[string]any{"model": model, "stream": true, "max_tokens": 1000, "messages": []any{map[string]string{"role": "user", "content": "hello"}}}
	var openAI, anthropic Answer
	var all sync.WaitGroup
	for path, answer := range map[string]*Answer{"/v1/chat/completions": &openAI, "/v1/messages": &anthropic} {
		all.Go(func() {
			var err error
			*answer, err = tryCall(t.Context(), "POST", url+path, chat, "X-Hotseat-Progress", "comments", "Origin", "https://page.example")
			assert.NoError(t, err)
		})
	}
	all.Wait()
	var event struct {
		Type  string
		Error struct{ Message, Type string }
	}
	for _, want := range []struct {
		answer          Answer
		api, name, kind string
	}{{openAI, "OpenAI", "", ""}, {anthropic, "Anthropic", "event: error\n", "error"}} {
		require.Equal(t, 200, want.answer.Status, "%s: %s", want.api, want.answer.Body)
		assert.Contains(t, want.answer.Header.Get("Content-Type"), "text/event-stream")
		assert.Equal(t, []string{"*"}, want.answer.Header.Values("Access-Control-Allow-Origin"), "for scripts of web pages")
		last := lastEvent.FindStringSubmatch(string(want.answer.Body))
		require.NotNil(t, last, "%s: %s", want.api, want.answer.Body)
		assert.Equal(t, want.name, last[1], want.api)
		event.Type = ""
		require.NoError(t, json.Unmarshal([]byte(last[2]), &event), want.api)
		assert.Equal(t, want.kind, event.Type, want.api)
		assert.NotEmpty(t, event.Error.Type)
		messages = append(messages, event.Error.Message)
	}
	return messages
}

// lastEvent is the body of a stream that ends with its only event, after comments: the event's
// name and its data.
var lastEvent = regexp.MustCompile(`\A(?:: waiting for .*\n\n)+(event: .*\n)?data: (.*)\n\n\z`)

// Row 10: a failure after signs of life ends the stream with an error event of the client's API;
// before the first sign it is a status.
func TestStreamWhoseModelFailsEndsWithAnErrorEvent(t *testing.T) {
	t.Parallel()
	_, url := offer(t, "models:\n"+modelText("a", "restart: never,", "--sim-load-time", "7s", "--sim-oom", "true")+modelText("b", "restart: never,", "--sim-oom", "true"))
	for _, message := range failAfterSigns(t, url, "a") {
		assert.Contains(t, message, "could not be made awake")
	}
	plain, _ := doorStream(t.Context(), t, url, "b", "X-Hotseat-Progress", "comments")
	assert.Equal(t, 502, plain.StatusCode)
}

// An error of the engine after signs of life is an event of the stream too.
func TestErrorOfTheEngineAfterSignsIsAnEvent(t *testing.T) {
	t.Parallel()
	_, url := offer(t, "models:\n"+modelText("a", "", "--sim-load-time", "7s", "--sim-max-model-len", "8"))
	for _, message := range failAfterSigns(t, url, "a") {
		assert.Contains(t, message, "max_model_len=max_total_tokens=8")
	}
}

// Row 11: from the second time on, Retry-After is within a factor of two of what the wake takes.
func TestRetryAfterIsLearnt(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", "", "--sim-wake-time", "2s")+modelText("b", ""), "--gpus", "simulated:1", "--max-held-requests", "1")
	for _, model := range []string{"a", "b", "a", "b"} { // a is started, and woken once
		require.Equal(t, 200, ask(t, url, model).Status)
	}
	before := n.demand("a").TookMS
	leave := keepWaiting(t, n, url, "a", func() io.Reader { return strings.NewReader(`{"model":"a"}`) })
	full := ask(t, url, "a")
	require.Equal(t, 429, full.Status)
	var seconds float64
	_, err := fmt.Sscan(full.Header.Get("Retry-After"), &seconds)
	require.NoError(t, err)
	n.Eventually("it is awake for the second time", func() bool { return n.demand("a").TookMS != before })
	took := n.demand("a").TookMS / 1000
	assert.GreaterOrEqual(t, seconds, took/2)
	assert.LessOrEqual(t, seconds, 2*took)
	leave()
}

// Row 9: the model of the higher priority goes first, although its request came later.
func TestModelOfHigherPriorityGoesFirst(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("first", "", "--sim-hang-at-load", "1")+modelText("low", "")+modelText("high", "priority: 5,"), "--gpus", "simulated:1")
	leave := keepWaiting(t, n, url, "first", func() io.Reader { return strings.NewReader(`{"model":"first"}`) })
	n.Eventually("it has the GPU", func() bool { return n.instances()["m-first"].State == "starting" })
	var order []string
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, model := range []string{"low", "high"} {
		all.Go(func() {
			got, err := tryCall(t.Context(), "POST", url+"/v1/completions", question(model))
			if assert.NoError(t, err) {
				assert.Equal(t, 200, got.Status)
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, model)
		})
		n.Eventually(model+" waits", func() bool { return n.demand(model).Waiting > 0 })
	}
	leave()
	n.Eventually("nobody waits for it", func() bool { return n.demand("first").Waiting == 0 })
	n.Delete("m-first")
	all.Wait()
	assert.Equal(t, []string{"high", "low"}, order)
}

// Row 9: the requests for one model are answered in the order in which they came.
func TestRequestsForOneModelAreAnsweredInOrder(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", "concurrency: 1,", "--sim-token-time", "20ms", "--sim-tokens", "100000"))
	began, leave, all := make(chan int, 5), make([]context.CancelFunc, 5), sync.WaitGroup{}
	next := func() int {
		select {
		case k := <-began:
			return k
		case <-time.After(patience):
			return -1
		}
	}
	question := `{"model":"a","stream":true,"max_tokens":2000,"prompt":"x"}`
	for k := range leave {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		leave[k] = end
		all.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", strings.NewReader(question))
			if !assert.NoError(t, err) {
				return
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if !assert.NoError(t, err) {
				return
			}
			defer resp.Body.Close()
			assert.Equal(t, 200, resp.StatusCode)
			began <- k
			_, err = io.Copy(io.Discard, resp.Body)
			assert.ErrorIs(t, err, context.Canceled, "the answer lasts until its client leaves")
		})
		if k == 0 {
			require.Zero(t, next())
		}
		n.Eventually("the request waits", func() bool { d := n.demand("a"); return d.InFlight == 1 && d.Waiting == k })
	}
	for k := range leave {
		if k > 0 {
			require.Equal(t, k, next())
			assert.Equal(t, 1, n.demand("a").InFlight)
		}
		leave[k]()
	}
	all.Wait()
}
