package main

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The words and codes are those that vLLM 0.30 was seen to answer with.
func TestErrorsAreAnsweredInTheWordsOfVLLM(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--max-model-len", "256"}, dev: true}).ready()
	const chat = "/v1/chat/completions"
	const user = `"messages":[{"role":"user","content":"hi"}]`
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		want               string
	}{
		"unknown model":       {"POST", chat, `{"model":"nope",` + user + `}`, 404, `{"error":{"message":"The model ` + "`nope`" + ` does not exist.","type":"NotFoundError","param":"model","code":404}}`},
		"malformed JSON":      {"POST", chat, `{not json`, 400, `{"error":{"message":"1 validation error:\n  {'type': 'json_invalid', 'loc': 'body.1', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {'error': 'Expecting property name enclosed in double quotes'}}","type":"Bad Request","param":"body.1","code":400}}`},
		"cut JSON":            {"POST", "/tokenize", `{`, 400, `{"error":{"message":"1 validation error:\n  {'type': 'json_invalid', 'loc': 'body.1', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {'error': 'Expecting property name enclosed in double quotes'}}","type":"Bad Request","param":"body.1","code":400}}`},
		"no messages":         {"POST", chat, `{"model":"m"}`, 400, `{"error":{"message":"1 validation error:\n  {'type': 'missing', 'loc': 'body.messages', 'msg': 'Field required', 'input': '<dict of 1 items>'}","type":"Bad Request","param":"body.messages","code":400}}`},
		"messages of no list": {"POST", chat, `{"messages":"hello"}`, 400, `{"error":{"message":"1 validation error:\n  {'type': 'list_type', 'loc': 'body.messages', 'msg': 'Input should be a valid list', 'input': 'hello'}","type":"Bad Request","param":"body.messages","code":400}}`},
		"empty messages":      {"POST", chat, `{"messages":[]}`, 400, `{"error":{"message":"Cannot apply chat template to an empty conversation. Provide at least one message.","type":"BadRequestError","param":null,"code":400}}`},
		"max_tokens no int":   {"POST", chat, `{` + user + `,"max_tokens":"x"}`, 400, `{"error":{"message":"1 validation error:\n  {'type': 'int_parsing', 'loc': 'body.max_tokens', 'msg': 'Input should be a valid integer, unable to parse string as an integer', 'input': 'x'}","type":"Bad Request","param":"body.max_tokens","code":400}}`},
		"max_tokens negative": {"POST", chat, `{` + user + `,"max_tokens":-1}`, 400, `{"error":{"message":"max_tokens must be at least 1, got -1. (parameter=max_tokens, value=-1)","type":"BadRequestError","param":"max_tokens","code":400}}`},
		"max_tokens too many": {"POST", chat, `{` + user + `,"max_tokens":1000}`, 400, `{"error":{"message":"max_tokens=1000 cannot be greater than max_model_len=max_total_tokens=256. Please request fewer output tokens. (parameter=max_tokens, value=1000)","type":"BadRequestError","param":"max_tokens","code":400}}`},
		"temperature":         {"POST", chat, `{` + user + `,"temperature":-1}`, 400, `{"error":{"message":"temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0)","type":"BadRequestError","param":"temperature","code":400}}`},
		"no prompt":           {"POST", "/v1/completions", `{"model":"m"}`, 400, `{"error":{"message":"Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)","type":"BadRequestError","param":"prompt","code":400}}`},
		"greedy and n":        {"POST", "/v1/completions", `{"prompt":"x","temperature":0,"n":2}`, 400, `{"error":{"message":"n must be 1 when using greedy sampling, got 2.","type":"BadRequestError","param":null,"code":400}}`},
		"no tokens":           {"POST", "/detokenize", `{"model":"m"}`, 400, `{"error":{"message":"1 validation error:\n  {'type': 'missing', 'loc': 'body.tokens', 'msg': 'Field required', 'input': '<dict of 1 items>'}","type":"Bad Request","param":"body.tokens","code":400}}`},
		"no such path":        {"GET", "/no/such/path", "", 404, `{"detail":"Not Found"}`},
		"not for such models": {"POST", "/v1/embeddings", `{"input":"x"}`, 404, `{"detail":"Not Found"}`},
		"rerank":              {"POST", "/rerank", `{}`, 404, `{"detail":"Not Found"}`},
		"wrong method":        {"GET", chat, "", 405, `{"detail":"Method Not Allowed"}`},
		"sleep no level":      {"POST", "/sleep?level=abc", "", 400, `{"error":{"message":"invalid literal for int() with base 10: 'abc'","type":"BadRequestError","param":null,"code":400}}`},
		"sleep no mode":       {"POST", "/sleep?mode=bogus", "", 500, `{"error":{"message":"Call to sleep method failed: Invalid pause mode: bogus","type":"InternalServerError","param":null,"code":500}}`},
		"rpc without method":  {"POST", "/collective_rpc", `{}`, 400, `{"error":{"message":"Missing 'method' in request body","type":"Bad Request","param":null,"code":400}}`},
		"rpc malformed":       {"POST", "/collective_rpc", `{`, 400, `{"error":{"message":"JSON decode error: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)","type":"Bad Request","param":null,"code":400}}`},
		"rpc unknown":         {"POST", "/collective_rpc", `{"method":"no_such"}`, 500, `{"error":{"message":"Call to collective_rpc method failed: Worker failed with error ''CPUWorker' object has no attribute 'no_such'', please check the stack trace above for the root cause","type":"InternalServerError","param":null,"code":500}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := p.call(c.method, c.path, c.body)
			require.Equal(t, c.status, a.status)
			require.Equal(t, c.want, a.body)
			require.Equal(t, "application/json", a.header.Get("Content-Type"))
			require.Equal(t, "uvicorn", a.header.Get("Server"))
		})
	}
}

func TestHeadersAreThoseOfVLLM(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m"}, dev: true}).ready()
	for _, path := range []string{"/health", "/ping"} {
		a := p.call("GET", path, "")
		require.Empty(t, a.body)
		require.Equal(t, "0", a.header.Get("Content-Length"))
		require.Equal(t, "Origin", a.header.Get("Vary"))
		require.Empty(t, a.header.Get("Content-Type"))
	}
	a := p.call("HEAD", "/health", "")
	require.Equal(t, http.StatusMethodNotAllowed, a.status)
	require.Equal(t, "GET", a.header.Get("Allow"))
	require.Equal(t, "31", a.header.Get("Content-Length"))
	a = p.call("GET", "/health/?x=1", "")
	require.Equal(t, http.StatusTemporaryRedirect, a.status)
	require.Equal(t, fmt.Sprintf("http://127.0.0.1:%d/health?x=1", p.port), a.header.Get("Location"))
	require.Empty(t, p.call("POST", "/sleep?mode=bogus", "").header.Get("Vary"), "an exception's answer has none")
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/v1/completions", p.port), http.NoBody)
	require.NoError(t, err)
	a, err = send(r)
	require.NoError(t, err)
	require.Contains(t, a.body, "Unsupported Media Type: Only 'application/json' is allowed")
}

func TestDeveloperEndpointsAreThereInDeveloperModeOnly(t *testing.T) {
	t.Parallel()
	plain := launch(t, setup{args: []string{"m"}}).ready()
	dev := launch(t, setup{args: []string{"m"}, dev: true}).ready()
	for path, method := range map[string]string{"/is_sleeping": "GET", "/sleep": "POST", "/wake_up": "POST", "/reset_prefix_cache": "POST", "/server_info": "GET", "/is_paused": "GET", "/get_world_size": "GET"} {
		require.Equal(t, http.StatusNotFound, plain.call(method, path, "").status, path)
		require.Equal(t, http.StatusOK, dev.call(method, path, "").status, path)
	}
}

func TestAKeyGuardsTheModelsAndNothingElse(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]setup{
		"flag":     {args: []string{"m", "--api-key", "other", "sekret"}, dev: true},
		"variable": {args: []string{"m"}, env: []string{"VLLM_API_KEY=sekret"}, dev: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := launch(t, s).ready()
			a := p.call("GET", "/v1/models", "")
			require.Equal(t, http.StatusUnauthorized, a.status)
			require.Equal(t, `{"error":"Unauthorized"}`, a.body)
			for key, status := range map[string]int{"Bearer sekret": 200, "bearer sekret": 200, "Bearer wrong": 401, "Basic sekret": 401} {
				r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/v1/models", p.port), http.NoBody)
				require.NoError(t, err)
				r.Header.Set("Authorization", key)
				a, err := send(r)
				require.NoError(t, err)
				require.Equal(t, status, a.status, key)
			}
			p.ok("POST", "/sleep", "")
			require.NotContains(t, p.text(), "sekret")
		})
	}
}

func TestRequestsAreLoggedAsUvicornDoes(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m"}, dev: true}).ready()
	p.ok("POST", "/sleep?level=1&mode=keep", "")
	require.Regexp(t, `(?m)^\(APIServer pid=\d+\) INFO:     127\.0\.0\.1:\d+ - "POST /sleep\?level=1&mode=keep HTTP/1\.1" 200 OK$`, p.text())
	require.Regexp(t, `(?m)^\(APIServer pid=\d+\) INFO \d\d-\d\d \d\d:\d\d:\d\d \[launcher\.py:70\] Route: /sleep, Methods: POST$`, p.text())
	quiet := launch(t, setup{args: []string{"m", "--uvicorn-log-level", "warning"}}).ready()
	require.NotContains(t, quiet.text(), "GET /health")
}
