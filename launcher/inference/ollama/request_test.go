package ollama_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/launcher/inference/ollama"
)

const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func TestRequestsAreTranslated(t *testing.T) {
	for name, c := range map[string]struct{ path, body, wantPath, want string }{
		"a chat streams by default": {
			"/api/chat", `{"model":"m:latest","messages":[{"role":"user","content":"hi"}]}`, "/v1/chat/completions",
			`{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}`,
		},
		"options": {
			"/api/chat", `{"model":"m","stream":false,"messages":[{"role":"user","content":"hi"}],"keep_alive":0,
			"options":{"temperature":0.5,"top_p":0.9,"top_k":20,"min_p":0.1,"seed":7,"stop":["a"],"presence_penalty":1,"frequency_penalty":2,
			"repeat_penalty":1.2,"num_predict":9,"num_ctx":4096,"what":true,"mirostat":null}}`, "/v1/chat/completions",
			`{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":false,"temperature":0.5,"top_p":0.9,"top_k":20,"min_p":0.1,"seed":7,
			"stop":["a"],"presence_penalty":1,"frequency_penalty":2,"repetition_penalty":1.2,"repeat_penalty":1.2,"max_tokens":9}`,
		},
		"no bound, no format, no tools, a null": {
			"/api/chat", `{"model":"m","stream":false,"messages":[{"role":"user","content":"hi"}],"format":"","tools":[],"options":{"num_predict":-1,"seed":null}}`,
			"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":false}`,
		},
		"a JSON format": {
			"/api/chat", `{"model":"m","stream":false,"messages":[{"role":"user","content":"hi"}],"format":"json"}`, "/v1/chat/completions",
			`{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":false,"response_format":{"type":"json_object"}}`,
		},
		"a schema and tools": {
			"/api/chat", `{"model":"m","stream":false,"messages":[{"role":"user","content":"hi"}],"format":{"type":"object"},"tools":[{"type":"function"}]}`,
			"/v1/chat/completions",
			`{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":false,"tools":[{"type":"function"}],
			"response_format":{"type":"json_schema","json_schema":{"name":"answer","schema":{"type":"object"}}}}`,
		},
		"images": {
			"/api/chat", `{"model":"m","stream":false,"messages":[{"role":"user","content":"hi","images":["` + png + `"]}]}`, "/v1/chat/completions",
			`{"model":"m","stream":false,"messages":[{"role":"user","content":[{"type":"text","text":"hi"},
			{"type":"image_url","image_url":{"url":"data:image/png;base64,` + png + `"}}]}]}`,
		},
		"results of tools": {
			"/api/chat", `{"model":"m","stream":false,"messages":[
			{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}},{"id":"x","function":{"name":"g"}},{"function":{"name":"f"}}]},
			{"role":"tool","content":"G","tool_call_id":"x"},{"role":"tool","content":"F"},{"role":"tool","content":"F2","tool_name":"f"}]}`, "/v1/chat/completions",
			`{"model":"m","stream":false,"messages":[
			{"role":"assistant","content":"","tool_calls":[{"id":"call_0_0","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},
			{"id":"x","type":"function","function":{"name":"g","arguments":"{}"}},
			{"id":"call_0_2","type":"function","function":{"name":"f","arguments":"{}"}}]},
			{"role":"tool","content":"G","tool_call_id":"x"},{"role":"tool","content":"F","tool_call_id":"call_0_0"},
			{"role":"tool","content":"F2","tool_call_id":"call_0_2"}]}`,
		},
		"a prompt becomes a chat": {
			"/api/generate", `{"model":"m","prompt":"hi","system":"be short","stream":false}`, "/v1/chat/completions",
			`{"model":"m","messages":[{"role":"system","content":"be short"},{"role":"user","content":"hi"}],"stream":false}`,
		},
		"a raw prompt": {
			"/api/generate", `{"model":"m","prompt":"hi","raw":true}`, "/v1/completions",
			`{"model":"m","prompt":"hi","stream":true,"stream_options":{"include_usage":true}}`,
		},
		"a prompt with a suffix": {
			"/api/generate", `{"model":"m","prompt":"hi","suffix":"ho","stream":false}`, "/v1/completions",
			`{"model":"m","prompt":"hi","suffix":"ho","stream":false}`,
		},
		"embeddings": {
			"/api/embed", `{"model":"m","input":["a","b"],"dimensions":8,"truncate":true}`, "/v1/embeddings",
			`{"model":"m","input":["a","b"],"dimensions":8,"encoding_format":"float"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			call, err := ollama.Translate(c.path, []byte(c.body), "m")
			require.NoError(t, err)
			assert.Equal(t, c.wantPath, call.Path)
			assert.JSONEq(t, c.want, string(call.Body))
			assert.False(t, call.Load)
		})
	}
}

func TestEmptyRequestsLoad(t *testing.T) {
	for path, body := range map[string]string{
		"/api/chat": `{"model":"m","messages":[],"keep_alive":"5m"}`, "/api/generate": `{"model":"m","keep_alive":-1}`,
	} {
		call, err := ollama.Translate(path, []byte(body), "m")
		require.NoError(t, err)
		assert.True(t, call.Load)
		assert.JSONEq(t, `{"model":"m"}`, string(call.Body))
	}
}

func TestRequestsThatCannotBeTranslatedAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ path, body, says string }{
		"a wrong type":             {"/api/chat", `{"model":"m","messages":7}`, "cannot be read"},
		"an unload":                {"/api/generate", `{"model":"m","keep_alive":0}`, "cannot unload"},
		"an unload by text":        {"/api/generate", `{"model":"m","keep_alive":"0m"}`, "cannot unload"},
		"an unload of a chat":      {"/api/chat", `{"model":"m","messages":[],"keep_alive":"0"}`, "cannot unload"},
		"no input":                 {"/api/embed", `{"model":"m"}`, "field input"},
		"an unknown format":        {"/api/chat", `{"model":"m","messages":[{"role":"user"}],"format":"xml"}`, "format must be"},
		"an image that is none":    {"/api/generate", `{"model":"m","prompt":"a","images":["????"]}`, "base64"},
		"a raw prompt with images": {"/api/generate", `{"model":"m","prompt":"a","raw":true,"images":["aaaa"]}`, "cannot have images"},
		"tools that are no list":   {"/api/chat", `{"model":"m","messages":[{"role":"user"}],"tools":{}}`, "must be a list"},
		"a bound that is a text":   {"/api/chat", `{"model":"m","messages":[{"role":"user"}],"options":{"num_predict":"x"}}`, "num_predict"},
		"a result without a call":  {"/api/chat", `{"model":"m","messages":[{"role":"tool","content":"a"}]}`, "messages[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ollama.Translate(c.path, []byte(c.body), "m")
			var known *inference.Error
			require.ErrorAs(t, err, &known)
			assert.Equal(t, 400, known.Status)
			assert.Contains(t, known.Message, c.says)
		})
	}
}
