package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A script of a web page of any origin may call the paths that engines serve, as with vLLM, and
// reads each answer by one header. A preflight touches no GPU, and needs no token.
func TestFrontDoorServesScriptsOfWebPages(t *testing.T) {
	t.Parallel()
	n, url := offer(t, twoModels)
	const page, allow = "https://page.example", "Access-Control-Allow-Origin"
	preflight := func(path string, more ...string) Answer {
		return call(t, "OPTIONS", url+path, nil, append([]string{
			"Origin", page, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization, content-type",
		}, more...)...)
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/models", "/v1/models/alpha", "/tokenize", "/rerank"} {
		got := preflight(path)
		assert.Equal(t, 200, got.Status, path)
		assert.Equal(t, []string{"*"}, got.Header.Values(allow), path)
		assert.Equal(t, "authorization, content-type", got.Header.Get("Access-Control-Allow-Headers"), path)
		assert.Contains(t, got.Header.Get("Access-Control-Allow-Methods"), "POST", path)
	}
	for _, path := range []string{"/sleep", "/api/chat", "/api/tags", "/v1/../sleep", "/v2/front-door"} {
		got := preflight(path)
		assert.Contains(t, []int{403, 404}, got.Status, path)
		assert.Empty(t, got.Header.Values(allow), path)
	}
	assert.Equal(t, 400, preflight("/v1/completions", "Access-Control-Request-Method", "DELETE").Status)
	private := preflight("/v1/completions", "Access-Control-Request-Private-Network", "true")
	assert.Equal(t, 400, private.Status, "a page of the internet does not call this machine")
	assert.Empty(t, n.instances())

	for name, got := range map[string]Answer{
		"of the engine":          ask(t, url, "alpha", "Origin", page),
		"an error of the engine": call(t, "POST", url+"/v1/completions", `{"model":"alpha"}`, "Origin", page),
		"an error of the door":   ask(t, url, "none", "Origin", page),
		"the list":               call(t, "GET", url+"/v1/models", nil, "Origin", page),
	} {
		assert.Equal(t, []string{"*"}, got.Header.Values(allow), name)
		assert.Equal(t, []string{"Origin"}, got.Header.Values("Vary"), name)
	}
	assert.Empty(t, ask(t, url, "alpha").Header.Values(allow), "it is no page that asks")
}

// A list of models says what engines tell of them, once they are awake.
func TestFrontDoorListsWhatEnginesTell(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", "", "--max-model-len", "1234")+modelText("b", ""), "--gpus", "simulated:1")
	type card struct {
		ID          string
		MaxModelLen int `json:"max_model_len"`
	}
	listed := func() card {
		var list struct{ Data []card }
		call(t, "GET", url+"/v1/models", nil).Into(t, &list)
		return list.Data[0]
	}
	assert.Equal(t, card{ID: "a"}, listed(), "no engine has told anything yet")
	for _, model := range []string{"a", "b", "a", "b"} {
		assert.Equal(t, 200, ask(t, url, model).Status)
		n.Eventually("a is listed as its engine says", func() bool { return listed() == card{"a", 1234} })
	}
	var one card
	call(t, "GET", url+"/v1/models/a", nil).Into(t, &one)
	assert.Equal(t, card{"a", 1234}, one)
}
