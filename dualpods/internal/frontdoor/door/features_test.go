package door_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestSamePrefixGoesToTheSamePod(t *testing.T) {
	w := newWorld(t)
	w.model(func(m *v1alpha1.Model) {
		m.Spec.LoadBalancing = &v1alpha1.LoadBalancing{Strategy: v1alpha1.StrategyPrefixHash, PrefixHash: &v1alpha1.PrefixHash{PrefixCharLength: new(int32(5))}}
		m.Spec.Adapters = []v1alpha1.ModelAdapter{{Name: "a"}}
	})
	for _, name := range []string{"a", "b", "c", "d"} {
		w.pod("gpu", answers(name))
	}
	of := func(model, beginning, rest string) string {
		got := w.ask("/v1/chat/completions", fmt.Sprintf(`{"model": %q, "messages": [{"role": "system", "content": %q}, {"role": "user", "content": [{"type": "text", "text": %q}]}]}`, model, rest, beginning+rest))
		require.Equal(t, http.StatusOK, got.status, got.body)
		return got.header.Get("X-Engine")
	}
	engines, adapted := map[string]bool{}, false
	for i := range 20 {
		beginning := fmt.Sprintf("größ%d", i%10)
		first := of("llama", beginning, "first")
		engines[first] = true
		assert.Equal(t, first, of("llama", beginning, "second"))
		adapted = adapted || first != of("llama_a", beginning, "first")
	}
	assert.Greater(t, len(engines), 1, "beginnings are spread")
	assert.True(t, adapted, "the adapter counts")
}

func TestModelsAreListedWithTheirStates(t *testing.T) {
	w := newWorld(t)
	w.model(func(m *v1alpha1.Model) {
		m.Spec.Aliases, m.Spec.Owner = []string{"gpt-4o"}, "meta"
		m.Spec.Adapters = []v1alpha1.ModelAdapter{{Name: "a"}}
	})
	list := func() string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/v1/models", nil)
		require.NoError(t, err)
		got, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		text, err := io.ReadAll(got.Body)
		require.NoError(t, err)
		require.NoError(t, got.Body.Close())
		return string(text)
	}
	idle := list()
	for _, want := range []string{`"id":"llama"`, `"id":"gpt-4o"`, `"id":"llama_a"`, `"parent":"llama"`, `"owned_by":"meta"`, `"state":"idle"`} {
		assert.Contains(t, idle, want)
	}
	w.pod("gpu", answers("a"))
	assert.Contains(t, list(), `"state":"ready"`)
}

func TestStreamThatWaitsGetsSignsWhereAsked(t *testing.T) {
	const stream = `{"model": "llama", "stream": true, "messages": []}`
	for name, tt := range map[string]struct {
		path, body string
		header     []string
		status     int
		want       string
		signs      bool
	}{
		"asked for":                 {"/v1/chat/completions", stream, []string{"X-Hotseat-Progress", "comments"}, 200, "data: {\"error\":", true},
		"asked for by Anthropic's":  {"/v1/messages", stream, []string{"X-Hotseat-Progress", "comments"}, 200, "event: error\n", true},
		"not asked for":             {"/v1/chat/completions", stream, nil, 503, `{"error":`, false},
		"asked for, but no stream":  {"/v1/chat/completions", chat, []string{"X-Hotseat-Progress", "comments"}, 503, `{"error":`, false},
		"signs that there are none": {"/v1/chat/completions", stream, []string{"X-Hotseat-Progress", "x"}, 400, "must be comments or reasoning", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.model(func(m *v1alpha1.Model) { m.Spec.Hold = &v1alpha1.ModelHold{TimeoutSeconds: new(int32(1))} })
			got := w.ask(tt.path, tt.body, tt.header...)
			assert.Equal(t, tt.status, got.status)
			assert.Contains(t, got.body, tt.want)
			assert.Equal(t, tt.signs, strings.Contains(got.body, "\n\n: ") || strings.HasPrefix(got.body, ": "), got.body)
		})
	}
	t.Run("and the answer follows", func(t *testing.T) {
		w := newWorld(t)
		w.model(nil)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/v1/chat/completions", strings.NewReader(stream))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Hotseat-Progress", "comments")
		got, err := http.DefaultClient.Do(r) // the header comes with the first sign
		require.NoError(t, err)
		w.pod("gpu", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("data: 1\n\n"))
		})
		text, err := io.ReadAll(got.Body)
		require.NoError(t, err)
		require.NoError(t, got.Body.Close())
		assert.True(t, strings.HasPrefix(string(text), ": "), string(text))
		assert.True(t, strings.HasSuffix(string(text), "data: 1\n\n"), string(text))
	})
}
