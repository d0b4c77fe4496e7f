package frontdoor

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// engineOf is the gate of an engine that tells its models, and serves these paths.
func engineOf(models string, paths ...string) http.Handler {
	engine := http.NewServeMux()
	engine.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(models)) })
	for _, path := range paths {
		engine.HandleFunc("POST "+path, func(http.ResponseWriter, *http.Request) {})
	}
	return engine
}

func TestCardsSayWhatEnginesTell(t *testing.T) {
	const vllm = `{"object":"list","data":[{"id":"m","max_model_len":4096},{"id":"adapter","max_model_len":1}]}`
	for name, c := range map[string]struct {
		engine http.Handler
		card   string
		ollama []string
	}{
		"vLLM with a model that completes": {engineOf(vllm, "/v1/completions"), `{"max_model_len":4096,"capabilities":["completion"]}`, []string{"completion", "tools"}},
		"vLLM with a model that embeds":    {engineOf(vllm, "/v1/embeddings"), `{"max_model_len":4096,"capabilities":["embedding"]}`, []string{"embedding"}},
		"vLLM that serves all paths":       {engineOf(vllm, "/v1/completions", "/v1/embeddings"), `{"max_model_len":4096}`, []string{"completion", "tools"}},
		"llama-server": {engineOf(`{"models":[{"name":"m","capabilities":["completion","multimodal"]}],"data":[{"id":"m","meta":{"n_ctx":512}}]}`),
			`{"meta":{"n_ctx":512},"capabilities":["completion","multimodal"]}`, []string{"completion", "tools", "vision"}},
		"an engine with a key":       {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }), `{}`, []string{"completion", "tools"}},
		"an engine without a list":   {engineOf(`[]`), `{}`, []string{"completion", "tools"}},
		"an engine of another shape": {engineOf(`{"data":[{"id":"m","max_model_len":"long"}]}`), `{}`, []string{"completion", "tools"}},
	} {
		t.Run(name, func(t *testing.T) {
			told, err := askCard(t.Context(), c.engine)
			require.NoError(t, err)
			got, err := json.Marshal(told)
			require.NoError(t, err)
			assert.JSONEq(t, c.card, string(got))
			assert.Equal(t, c.ollama, told.ollamaCapabilities())
		})
	}
	for name, engine := range map[string]http.HandlerFunc{
		"cut off": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"too long": func(w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(make([]byte, mostOfCard+1))
			panicOf(err)
		},
	} {
		_, err := askCard(t.Context(), engine)
		assert.Error(t, err, name)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err := askCard(gone, engineOf(vllm))
	assert.ErrorIs(t, err, context.Canceled)
}

// panicOf breaks an answer off as a proxy does whose client does not take it.
func panicOf(err error) {
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// An engine is asked once while its instance lives; the card of another instance is another.
func TestCardsAreKeptForTheirInstances(t *testing.T) {
	f, fake := newDoor(t, catalogueText)
	asked := make(chan struct{}, 100)
	f.opts.Handlers = func(string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked <- struct{}{}
			engineOf(`{"data":[{"id":"m","max_model_len":7}],"models":[{"capabilities":["completion"]}]}`).ServeHTTP(w, r)
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { f.learn(ctx); close(over) }()
	look := func(all ...launcherapi.Instance) {
		fake.mu.Lock()
		fake.all = all
		fake.mu.Unlock()
		f.cards.lookAgain()
	}
	a := instanceOf(f, "a", launcher.Sleeping)
	look(a)
	a.State = string(launcher.Awake)
	look(a)
	<-asked
	require.Eventually(t, func() bool { return f.cards.has(&a) }, time.Minute, time.Millisecond)
	a.State = string(launcher.Sleeping)
	look(a)
	w := httptest.NewRecorder()
	f.listModels(w)
	var list struct {
		Data []struct {
			ID           string
			MaxModelLen  int `json:"max_model_len"`
			Capabilities []string
		}
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &list))
	assert.Equal(t, "a", list.Data[0].ID)
	assert.Equal(t, 7, list.Data[0].MaxModelLen)
	assert.Equal(t, []string{"completion"}, list.Data[0].Capabilities)
	a.State, a.CreatedAt = string(launcher.Awake), a.CreatedAt.Add(time.Second)
	assert.Empty(t, f.cards.of(&a), "it is another engine")
	look(a)
	<-asked
	require.Eventually(t, func() bool { return f.cards.has(&a) }, time.Minute, time.Millisecond)
	assert.Empty(t, asked)
	look()
	require.Eventually(t, func() bool { return !f.cards.has(&a) }, time.Minute, time.Millisecond)
	stop()
	<-over
}
