package ollama_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/inference/ollama"
)

const (
	aChat     = `{"model":"m:latest","messages":[{"role":"user","content":"hi"}]}`
	aPrompt   = `{"model":"m:latest","prompt":"hi"}`
	anInput   = `{"model":"m:latest","input":"hi"}`
	usageText = `"usage":{"prompt_tokens":3,"completion_tokens":2}`
)

// translated returns the lines of the translation of an answer, without times, and its status.
func translated(t *testing.T, path, request, kind string, status int, answer string) (string, *http.Response) {
	t.Helper()
	call, err := ollama.Translate(path, []byte(request), "m")
	require.NoError(t, err)
	w := httptest.NewRecorder()
	a := call.Answer(w)
	a.Header().Set("Content-Type", kind)
	a.Header().Set("Content-Length", "7")
	if status != 0 {
		a.WriteHeader(status)
		for _, part := range []string{answer[:len(answer)/2], answer[len(answer)/2:]} { // in the middle of a line
			_, err := io.WriteString(a, part)
			require.NoError(t, err)
			require.NoError(t, a.FlushError())
		}
	}
	require.NoError(t, a.Finish())
	lines := []string{}
	for line := range strings.Lines(w.Body.String()) {
		fields := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(line), &fields), line)
		for _, name := range []string{"created_at", "total_duration", "load_duration", "prompt_eval_duration", "eval_duration"} {
			delete(fields, name)
		}
		text, err := json.Marshal(fields)
		require.NoError(t, err)
		lines = append(lines, string(text))
	}
	answered := w.Result()
	require.NoError(t, answered.Body.Close())
	assert.Empty(t, answered.Header.Get("Content-Length"))
	return strings.Join(lines, "\n"), answered
}

func TestAnswersAreTranslated(t *testing.T) {
	const done = `"done":true,"done_reason":"stop","eval_count":2,`
	for name, c := range map[string]struct {
		path, request, answer string
		status                int
		want                  string
	}{
		"a chat": {
			"/api/chat", aChat, `{"choices":[{"message":{"content":"ho","reasoning":"hm"},"finish_reason":"stop"}],` + usageText + `}`, 200,
			`{` + done + `"message":{"content":"ho","role":"assistant","thinking":"hm"},"model":"m:latest","prompt_eval_count":3}`,
		},
		"a call of a tool": {
			"/api/chat", aChat,
			`{"choices":[{"message":{"content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"a\":1}"}},{"function":{"name":"f","arguments":""}}]},"finish_reason":"tool_calls"}],` + usageText + `}`, 200,
			`{` + done + `"message":{"content":"","role":"assistant","tool_calls":[{"function":{"arguments":{"a":1},"name":"f"},"id":"c"},{"function":{"arguments":{},"name":"f"}}]},"model":"m:latest","prompt_eval_count":3}`,
		},
		"a call with other arguments": {
			"/api/chat", aChat, `{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":"{"}}]}}]}`, 502,
			`{"error":"the model's call of f has arguments that are no JSON object"}`,
		},
		"a prompt": {
			"/api/generate", aPrompt, `{"choices":[{"text":"ho","finish_reason":"length"},{"index":1,"text":"no"}]}`, 200,
			`{"done":true,"done_reason":"length","eval_count":0,"model":"m:latest","prompt_eval_count":0,"response":"ho"}`,
		},
		"embeddings": {
			"/api/embed", anInput, `{"data":[{"embedding":[1,2]},{"embedding":[3]}],` + usageText + `}`, 200,
			`{"embeddings":[[1,2],[3]],"model":"m:latest","prompt_eval_count":3}`,
		},
		"an error of OpenAI": {"/api/chat", aChat, `{"error":{"message":"no"}}`, 404, `{"error":"no"}`},
		"an error of old":    {"/api/chat", aChat, `{"object":"error","message":"no"}`, 400, `{"error":"no"}`},
		"an error of a path": {"/api/chat", aChat, `{"detail":"Not Found"}`, 404, `{"error":"Not Found"}`},
		"an error as a text": {"/api/chat", aChat, `bad gateway` + "\n", 502, `{"error":"bad gateway"}`},
		"no JSON":            {"/api/chat", aChat, `<html>`, 502, `{"error":"the answer of the engine cannot be read: invalid character '\u003c' looking for beginning of value"}`},
	} {
		t.Run(name, func(t *testing.T) {
			status := c.status
			if status == 502 && c.answer[0] != 'b' {
				status = 200 // of the engine
			}
			got, answered := translated(t, c.path, c.request, "application/json", status, c.answer)
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.status, answered.StatusCode)
			assert.Equal(t, "application/json; charset=utf-8", answered.Header.Get("Content-Type"))
		})
	}
}

func TestLoadIsAnswered(t *testing.T) {
	got, answered := translated(t, "/api/generate", `{"model":"m:latest"}`, "", 0, "")
	assert.Equal(t, 200, answered.StatusCode)
	assert.JSONEq(t, `{"done":true,"done_reason":"load","model":"m:latest","response":""}`, got)
	got, _ = translated(t, "/api/chat", `{"model":"m:latest","messages":[]}`, "", 0, "")
	assert.JSONEq(t, `{"done":true,"done_reason":"load","model":"m:latest","message":{"role":"assistant","content":""}}`, got)
	got, answered = translated(t, "/api/generate", `{"model":"m:latest"}`, "application/json", 503, `{"error":{"message":"full"}}`)
	assert.Equal(t, 503, answered.StatusCode)
	assert.JSONEq(t, `{"error":"full"}`, got)
}

func TestStreamsAreTranslated(t *testing.T) {
	const end = `{"done":true,"done_reason":"stop","eval_count":2,"message":{"content":"","role":"assistant"},"model":"m:latest","prompt_eval_count":3}`
	usageEvent := "data: {\"choices\":[]," + usageText + "}\n\ndata: [DONE]\n\n"
	for name, c := range map[string]struct{ path, request, answer, want string }{
		"a chat": {
			"/api/chat", aChat,
			": a comment\n\ndata: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n" +
				"data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}\r\n\r\n" +
				"data:{\"choices\":[{\"delta\":{\"content\":\"ho\"},\"finish_reason\":\"stop\"}]}\n\n" + usageEvent,
			`{"done":false,"message":{"content":"","role":"assistant","thinking":"hm"},"model":"m:latest"}` + "\n" +
				`{"done":false,"message":{"content":"ho","role":"assistant"},"model":"m:latest"}` + "\n" + end,
		},
		"a call of a tool in parts": {
			"/api/chat", aChat,
			"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\"\"}}]}}]}\n\n" +
				"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":1,\"function\":{\"name\":\"g\"}}]}}]}\n\n" +
				"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\":1}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n" + usageEvent,
			strings.Replace(end, `"role":"assistant"`, `"role":"assistant","tool_calls":[{"function":{"arguments":{"a":1},"name":"f"},"id":"c"},{"function":{"arguments":{},"name":"g"}}]`, 1),
		},
		"a prompt": {
			"/api/generate", aPrompt, "data: {\"choices\":[{\"text\":\"ho\"}]}\n\ndata: [DONE]\n\n",
			`{"done":false,"model":"m:latest","response":"ho"}` + "\n" +
				`{"done":true,"done_reason":"stop","eval_count":0,"model":"m:latest","prompt_eval_count":0,"response":""}`,
		},
		"an error": {
			"/api/chat", aChat, "data: {\"error\":{\"message\":\"no\"}}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"ho\"}}]}\n\ndata: [DONE]\n\n", `{"error":"no"}`,
		},
		"an end that comes early": {
			"/api/chat", aChat, "data: {\"choices\":[{\"delta\":{\"content\":\"ho\"}}]}\n\n",
			`{"done":false,"message":{"content":"ho","role":"assistant"},"model":"m:latest"}` + "\n" + `{"error":"the engine ended its answer early"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, answered := translated(t, c.path, c.request, "text/event-stream; charset=utf-8", 200, c.answer)
			assert.Equal(t, c.want, got)
			assert.Equal(t, 200, answered.StatusCode)
			assert.Equal(t, "application/x-ndjson", answered.Header.Get("Content-Type"))
		})
	}
}

func TestAnswerThatIsTooLongIsNotKept(t *testing.T) {
	call, err := ollama.Translate("/api/chat", []byte(aChat), "m")
	require.NoError(t, err)
	a := call.Answer(httptest.NewRecorder())
	part := make([]byte, 32<<20)
	for range 2 {
		_, err = a.Write(part)
		require.NoError(t, err)
	}
	_, err = a.Write(part[:1])
	assert.Error(t, err)
}
