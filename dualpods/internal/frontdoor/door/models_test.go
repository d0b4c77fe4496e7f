package door_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// get asks for something that has no body.
func (w *world) get(method, path string, header ...string) answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, nil)
	require.NoError(w.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	got, err := http.DefaultClient.Do(r)
	require.NoError(w.t, err)
	defer func() { _ = got.Body.Close() }()
	text, err := io.ReadAll(got.Body)
	require.NoError(w.t, err)
	return answer{got.StatusCode, got.Header, string(text)}
}

// listed returns the names that are listed.
func (w *world) listed(header ...string) (names []string) {
	w.t.Helper()
	var list struct{ Data []struct{ ID string } }
	require.NoError(w.t, json.Unmarshal([]byte(w.get(http.MethodGet, "/v1/models", header...).body), &list))
	for _, c := range list.Data {
		names = append(names, c.ID)
	}
	return names
}

// other adds a Model beside llama.
func (w *world) other(name string, aliases ...string) {
	m := &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	m.Spec.Aliases = aliases
	w.dir.SetModel(m)
}

func TestNameOfSeveralModelsIsListedOnce(t *testing.T) {
	w := newWorld(t)
	w.model(func(m *v1alpha1.Model) {
		m.Spec.Aliases, m.Spec.Adapters = []string{"gpt", "qwen", "gpt"}, []v1alpha1.ModelAdapter{{Name: "a"}}
	})
	w.other("llama_a", "gpt")
	w.other("qwen")
	assert.Equal(t, []string{"llama", "gpt", "llama_a", "qwen"}, w.listed())
}

func TestModelIsShownByEachOfItsNames(t *testing.T) {
	w := newWorld(t)
	w.model(func(m *v1alpha1.Model) { m.Spec.Aliases = []string{"org/gpt"} })
	assert.JSONEq(t, `{"id": "llama", "object": "model", "created": -62135596800, "owned_by": "hotseat", "state": "idle"}`, w.get(http.MethodGet, "/v1/models/llama").body)
	w.pod("gpu", answers("a"))
	assert.JSONEq(t, `{"id": "org/gpt", "object": "model", "created": -62135596800, "owned_by": "hotseat", "parent": "llama", "state": "ready"}`, w.get(http.MethodGet, "/v1/models/org/gpt").body)
	unknown := w.get(http.MethodGet, "/v1/models/lama")
	assert.Equal(t, http.StatusNotFound, unknown.status)
	assert.Contains(t, unknown.body, "did you mean llama?")
}

func TestScriptsOfWebPagesMayAsk(t *testing.T) {
	w := newWorld(t)
	w.model(nil)
	const origin, allowed = "https://elsewhere.example", "Access-Control-Allow-Origin"
	preflight := w.get(http.MethodOptions, "/v1/chat/completions", "Origin", origin, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization")
	assert.Equal(t, http.StatusOK, preflight.status)
	assert.Equal(t, []string{"*", "authorization"}, []string{preflight.header.Get(allowed), preflight.header.Get("Access-Control-Allow-Headers")})
	assert.Equal(t, "*", w.get(http.MethodGet, "/v1/models", "Origin", origin).header.Get(allowed))
	assert.Equal(t, "*", w.ask("/v1/chat/completions", `{}`, "Origin", origin).header.Get(allowed), "an error of the front door")
	w.pod("gpu", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(allowed, origin) })
	assert.Equal(t, []string{origin}, w.ask("/v1/chat/completions", chat, "Origin", origin).header.Values(allowed), "the engine says who may read its answer")
}

func (w *world) token(name string, data map[string]string) {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: name}, Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	w.tokens.Set(s)
}

// An alias may be of several Models.
func TestAliasIsTheModelThatTheTokenIsFor(t *testing.T) {
	w := newWorld(t)
	w.model(func(m *v1alpha1.Model) { m.Spec.Aliases = []string{"gpt"} })
	w.other("aaa", "gpt")
	w.pod("gpu", answers("llama"))
	w.token("one", map[string]string{"token": "t-one", "models": "llama"})
	got := w.ask("/v1/chat/completions", `{"model": "gpt"}`, "X-Api-Key", "t-one")
	assert.Equal(t, http.StatusOK, got.status, got.body)
}

func TestTokenIsForItsModels(t *testing.T) {
	w := newWorld(t)
	w.model(nil)
	w.other("qwen")
	w.pod("gpu", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"))
	})
	assert.Equal(t, "Bearer own", w.ask("/v1/chat/completions", chat, "Authorization", "Bearer own").body, "without tokens the engine may have its own")

	w.token("all", map[string]string{"token": "t-all\n"})
	w.token("one", map[string]string{"token": "t-one", "models": "llama, other\n"})
	w.token("else", map[string]string{"token": "t-else", "models": "qwen"})
	w.token("away", map[string]string{"token": "t-away", "namespace": "other"})
	w.token("none", map[string]string{"token": "t-none", "models": ""})
	w.token("empty", nil)
	for name, tt := range map[string]struct {
		header []string
		status int
		listed []string
	}{
		"no token":                       {nil, 401, nil},
		"an unknown token":               {[]string{"Authorization", "Bearer x"}, 401, nil},
		"an empty token":                 {[]string{"Authorization", "Bearer "}, 401, nil},
		"another scheme":                 {[]string{"Authorization", "Basic t-all"}, 401, nil},
		"a token for all":                {[]string{"Authorization", "Bearer t-all"}, 200, []string{"llama", "qwen"}},
		"a token for it, as Anthropic's": {[]string{"X-Api-Key", "t-one"}, 200, []string{"llama"}},
		"a token for another":            {[]string{"Authorization", "bearer t-else"}, 403, []string{"qwen"}},
		"a token for another namespace":  {[]string{"Authorization", "Bearer t-away"}, 403, nil},
		"a token for nothing":            {[]string{"Authorization", "Bearer t-none"}, 403, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := w.ask("/v1/chat/completions", chat, tt.header...)
			assert.Equal(t, tt.status, got.status, got.body)
			if tt.status == 200 {
				assert.Empty(t, got.body, "the engine does not see the token")
			}
			assert.Equal(t, tt.listed, w.listed(tt.header...))
			unknown := w.ask("/v1/chat/completions", `{"model": "lama"}`, tt.header...)
			assert.Equal(t, tt.status == 200, strings.Contains(unknown.body, "did you mean llama?"), unknown.body)
		})
	}
	assert.Equal(t, http.StatusNotFound, w.get(http.MethodGet, "/v1/models/llama", "X-Api-Key", "t-else").status)
	for _, name := range []string{"all", "one", "else", "away", "none", "empty"} {
		w.tokens.Delete(types.NamespacedName{Namespace: "system", Name: name})
	}
	assert.Equal(t, http.StatusOK, w.ask("/v1/chat/completions", chat).status)
	assert.Empty(t, w.own.All())
}
