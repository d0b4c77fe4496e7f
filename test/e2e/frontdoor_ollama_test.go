package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// ollamaAnswer is an answer, or a line of a stream, of Ollama's API.
type ollamaAnswer struct {
	Model, Response, Error string
	Message                struct{ Role, Content, Thinking string }
	Done                   bool
	DoneReason             string `json:"done_reason"`
	EvalCount              int    `json:"eval_count"`
	PromptEvalCount        int    `json:"prompt_eval_count"`
	TotalDuration          int64  `json:"total_duration"`
	Embeddings             [][]float64
}

// askOllama posts a text as curl does, whose content type says nothing of JSON.
func askOllama(t *testing.T, url, path, body string) (status int, lines []ollamaAnswer) {
	t.Helper()
	got := call(t, "POST", url+path, body, "Content-Type", "application/x-www-form-urlencoded")
	for line := range strings.Lines(string(got.Body)) {
		var one ollamaAnswer
		require.NoError(t, json.Unmarshal([]byte(line), &one), "%s", line)
		lines = append(lines, one)
	}
	require.NotEmpty(t, lines)
	return got.Status, lines
}

// Rows 1 and 5: Ollama's API asks the same models by the same names.
func TestFrontDoorAnswersOllamasAPI(t *testing.T) {
	t.Parallel()
	_, url := offer(t, twoModels)
	const ask = `"options":{"num_predict":4,"temperature":0}`
	for path, question := range map[string]string{
		"/api/chat": `"messages":[{"role":"user","content":"who are you?"}]`, "/api/generate": `"prompt":"who are you?"`,
	} {
		for _, model := range []string{"alpha", "org/alpha:latest", "any"} {
			status, whole := askOllama(t, url, path, `{"model":"`+model+`","stream":false,`+question+`,`+ask+`}`)
			require.Equal(t, 200, status, "%+v", whole)
			require.Len(t, whole, 1)
			one := whole[0]
			assert.Equal(t, model, one.Model)
			assert.NotEmpty(t, one.Message.Content+one.Response)
			assert.True(t, one.Done)
			assert.Equal(t, "length", one.DoneReason)
			assert.Equal(t, 4, one.EvalCount)
			assert.Positive(t, one.PromptEvalCount)
			assert.Positive(t, one.TotalDuration)

			status, stream := askOllama(t, url, path, `{"model":"`+model+`",`+question+`,`+ask+`}`)
			require.Equal(t, 200, status)
			text := ""
			for n, line := range stream {
				text += line.Message.Content + line.Response
				assert.Equal(t, n == len(stream)-1, line.Done)
				assert.Equal(t, model, line.Model)
			}
			assert.Greater(t, len(stream), 2)
			assert.Equal(t, one.Message.Content+one.Response, text)
			last := stream[len(stream)-1]
			assert.Equal(t, "length", last.DoneReason)
			assert.Equal(t, 4, last.EvalCount)
			assert.Equal(t, one.PromptEvalCount, last.PromptEvalCount)
		}
	}
	status, raw := askOllama(t, url, "/api/generate", `{"model":"alpha","prompt":"who are you?","raw":true,"stream":false,`+ask+`}`)
	require.Equal(t, 200, status)
	completion := call(t, "POST", url+"/v1/completions", question("alpha"))
	var v struct{ Choices []struct{ Text string } }
	completion.Into(t, &v)
	assert.Equal(t, v.Choices[0].Text, raw[0].Response)
}

// Row 5: the same lists by Ollama's tags and ps; a load wakes a model.
func TestFrontDoorListsAndLoadsModelsForOllama(t *testing.T) {
	t.Parallel()
	n, url := offer(t, twoModels)
	list := func(path string) (names []string) {
		var v struct {
			Models []struct{ Name, Model, Digest string }
		}
		call(t, "GET", url+path, nil).Into(t, &v)
		for _, m := range v.Models {
			assert.Equal(t, m.Name, m.Model)
			assert.Len(t, m.Digest, 64)
			names = append(names, m.Name)
		}
		return names
	}
	assert.Equal(t, []string{"org/alpha", "alpha", "alpha-cold", "beta", "any"}, list("/api/tags"))
	assert.Empty(t, list("/api/ps"))
	status, loaded := askOllama(t, url, "/api/generate", `{"model":"beta:latest"}`)
	require.Equal(t, 200, status, "%+v", loaded)
	assert.Equal(t, []ollamaAnswer{{Model: "beta:latest", Done: true, DoneReason: "load"}}, loaded)
	assert.Equal(t, []string{"beta"}, list("/api/ps"))
	assert.Equal(t, "awake", n.Get("m-beta").State)
	assert.Equal(t, 200, call(t, "HEAD", url+"/", nil).Status, "so Ollama's program asks whether its server runs")
	var version struct{ Version string }
	call(t, "GET", url+"/api/version", nil).Into(t, &version)
	assert.Regexp(t, `^\d+\.\d+\.\d+$`, version.Version)
	shown := call(t, "POST", url+"/api/show", `{"model":"beta:latest"}`)
	assert.Equal(t, 200, shown.Status)
	assert.Contains(t, string(shown.Body), `"completion"`)
}

// Errors have Ollama's shape, and start nothing.
func TestFrontDoorRefusesInOllamasShape(t *testing.T) {
	t.Parallel()
	n, url := offer(t, twoModels)
	for name, c := range map[string]struct {
		path, body string
		status     int
		says       string
	}{
		"an unknown model":       {"/api/chat", `{"model":"alpa","messages":[{"role":"user","content":"a"}]}`, 404, "did you mean alpha"},
		"an unknown model shown": {"/api/show", `{"model":"alpa:latest"}`, 404, "did you mean alpha"},
		"an unload":              {"/api/generate", `{"model":"alpha","keep_alive":0}`, 400, "cannot unload"},
		"no JSON":                {"/api/chat", `model=alpha`, 400, "JSON"},
		"cut off":                {"/api/chat", `{"model":"alpha"`, 400, "JSON"},
		"no model":               {"/api/chat", `{}`, 400, "field model"},
		"another path":           {"/api/pull", `{"model":"alpha"}`, 404, "not served"},
		"another spelling":       {"/api/%63hat", `{"model":"alpha"}`, 404, "not served"},
	} {
		status, answer := askOllama(t, url, c.path, c.body)
		assert.Equal(t, c.status, status, name)
		assert.Contains(t, answer[0].Error, c.says, name)
	}
	page := call(t, "POST", url+"/api/generate", `{"model":"alpha"}`, "Content-Type", "text/plain", "Origin", "https://elsewhere.example")
	assert.Equal(t, 403, page.Status, "a browser asks for no leave to send a text")
	var all launcherapi.InstanceList
	n.Call("GET", "/v2/vllm/instances", nil).Into(t, &all)
	assert.Empty(t, all.Instances)
	status, answer := askOllama(t, url, "/api/embed", `{"model":"alpha","input":"a"}`)
	assert.GreaterOrEqual(t, status, 400, "so says the engine, whose model has no embeddings")
	assert.NotEmpty(t, answer[0].Error)
}

// A model that cannot start: the cause, in Ollama's shape.
func TestFailedStartIsAnErrorOfOllama(t *testing.T) {
	t.Parallel()
	_, url := offer(t, "models:\n- {name: broken, options: broken --sim-crash-at-load exit:3, gpus: 1}\n")
	status, answer := askOllama(t, url, "/api/generate", `{"model":"broken"}`)
	assert.Equal(t, 502, status)
	assert.NotEmpty(t, answer[0].Error)
}

// Row 10: a stream that waits gets signs of life as thinking, where asked for.
func TestOllamasStreamThatWaitsGetsSignsOfLife(t *testing.T) {
	t.Parallel()
	_, url := offer(t, "models:\n"+modelText("a", "", "--sim-load-time", "7s"))
	status, lines := askOllama(t, url, "/api/chat?hotseat_progress=reasoning", `{"model":"a","messages":[{"role":"user","content":"hello"}]}`)
	require.Equal(t, 200, status)
	assert.Contains(t, lines[0].Message.Thinking, "waiting for a ")
	assert.True(t, lines[len(lines)-1].Done)
}

// Row 8: a client of Ollama's API that leaves frees its place.
func TestClientOfOllamasAPIThatLeavesFreesItsPlace(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", "", "--sim-hang-at-load", "1"))
	for _, body := range []string{`{"model":"a","prompt":"hello"}`, `{"model":"a"}`} {
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := tryCall(ctx, "POST", url+"/api/generate", body)
			left <- err
		}()
		n.Eventually("it waits", func() bool { return n.demand("a").Waiting == 1 })
		leave()
		require.ErrorIs(t, <-left, context.Canceled)
		n.Eventually("the place is free", func() bool { return n.demand("a").Waiting == 0 })
	}
}
