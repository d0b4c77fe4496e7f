package engine

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeLlama answers as llama-server was seen to. It has three slots, of which the last has tokens.
type fakeLlama struct {
	*httptest.Server
	adapter *LlamaCpp
	model   string // path of its file
	dir     string // of its slots
	calls   []string
	instead map[string]int // statuses by path
}

func newFakeLlama(t *testing.T) *fakeLlama {
	t.Helper()
	f := &fakeLlama{adapter: NewLlamaCpp(LlamaCppOptions{}), model: filepath.Join(t.TempDir(), "m.gguf"), dir: t.TempDir(), instead: map[string]int{}}
	require.NoError(t, os.WriteFile(f.model, []byte("weights"), 0o600))
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.adapter.Close()
		f.Close()
	})
	return f
}

func (f *fakeLlama) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	path := r.URL.RequestURI()
	f.calls = append(f.calls, strings.TrimSpace(r.Method+" "+path+" "+string(body)))
	switch status := f.instead[path]; {
	case status != 0:
		w.WriteHeader(status)
	case path == "/health":
	case r.Header.Get("Authorization") != "Bearer sesame":
		w.WriteHeader(http.StatusUnauthorized)
	case path == "/props":
		_ = json.NewEncoder(w).Encode(map[string]string{"model_path": f.model})
	case path == "/slots":
		fmt.Fprint(w, `[{"id":0},{"id":1},{"id":2}]`)
	case strings.HasSuffix(path, "?action=save"):
		var slot struct{ Filename string }
		_ = json.Unmarshal(body, &slot)
		_ = os.WriteFile(filepath.Join(f.dir, slot.Filename), nil, 0o600)
		tokens := 0
		if slot.Filename == "slot-2" {
			tokens = 33
		}
		fmt.Fprintf(w, `{"n_saved":%d}`, tokens)
	case strings.HasSuffix(path, "?action=restore"):
		fmt.Fprint(w, `{}`)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func TestLlamaSlotsAreSavedAndRestored(t *testing.T) {
	f := newFakeLlama(t)
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "slot-7"), nil, 0o600))
	require.NoError(t, f.adapter.Restore(t.Context(), f.URL, f.dir, "sesame"), "nothing was saved")
	assert.Empty(t, f.calls)
	require.NoError(t, f.adapter.Save(t.Context(), f.URL, f.dir, "sesame"))
	assert.NoFileExists(t, filepath.Join(f.dir, "slot-7"))
	f.calls = nil
	require.NoError(t, f.adapter.Restore(t.Context(), f.URL, f.dir, "sesame"))
	assert.Equal(t, []string{"GET /props", `POST /slots/2?action=restore {"filename":"slot-2"}`}, f.calls, "the others have no tokens")
}

func TestLlamaSaveThatFailsLeavesNothingToRestore(t *testing.T) {
	f := newFakeLlama(t)
	save := func() error { return f.adapter.Save(t.Context(), f.URL, f.dir, "sesame") }
	restored := func() []string {
		f.calls = nil
		require.NoError(t, f.adapter.Restore(t.Context(), f.URL, f.dir, "sesame"))
		return f.calls
	}
	require.NoError(t, save())
	require.NotEmpty(t, restored())
	for path, status := range map[string]int{"/props": 500, "/slots": 500, "/slots/1?action=save": 500} {
		f.instead = map[string]int{path: status}
		require.ErrorContains(t, save(), "cannot save")
		assert.Empty(t, restored(), path)
	}
	f.instead = map[string]int{"/slots/0?action=save": http.StatusNotImplemented}
	require.NoError(t, save(), "of a model that sees, slots cannot be saved")
	assert.Empty(t, restored())
	require.ErrorContains(t, f.adapter.Save(t.Context(), f.URL, f.dir, ""), "401")
}

func TestLlamaSlotsOfOtherWeightsOrAnotherBootAreNotRestored(t *testing.T) {
	f := newFakeLlama(t)
	restore := func() error { return f.adapter.Restore(t.Context(), f.URL, f.dir, "sesame") }
	require.NoError(t, f.adapter.Save(t.Context(), f.URL, f.dir, "sesame"))
	list := filepath.Join(f.dir, savedSlotsFile)
	written, err := os.ReadFile(list)
	require.NoError(t, err)

	f.instead = map[string]int{"/slots/2?action=restore": 400}
	require.ErrorContains(t, restore(), "cannot restore slot 2")
	f.instead, f.calls = nil, nil
	require.NoError(t, os.WriteFile(f.model, []byte("others"), 0o600))
	require.ErrorContains(t, restore(), "the model's files have changed")
	require.NoError(t, os.WriteFile(list, []byte(strings.Replace(string(written), `"boot":"`, `"boot":"another `, 1)), 0o600))
	require.ErrorContains(t, restore(), "the machine was started again")
	require.NoError(t, os.WriteFile(list, []byte("{"), 0o600))
	require.ErrorContains(t, restore(), "cannot read the list")
	assert.Equal(t, []string{"GET /props", "GET /props"}, f.calls, "no slot was asked for")
}

func TestLlamaIsReadyWhenItIsHealthy(t *testing.T) {
	f := newFakeLlama(t)
	require.NoError(t, f.adapter.Ready(t.Context(), f.URL))
	f.instead["/health"] = http.StatusServiceUnavailable
	var status *StatusError
	require.ErrorAs(t, f.adapter.Ready(t.Context(), f.URL), &status)
}

func TestLlamaProbesAreReadInItsOwnForm(t *testing.T) {
	answer, err := readLlamaCompletion([]byte(`{"choices":[{"text":"6","logprobs":{"content":[{"token":"6","top_logprobs":[{"token":"6"},{"token":"x"}]}]}}]}`))
	require.NoError(t, err)
	assert.Equal(t, Answer{Token: "6", Likeliest: []string{"6", "x"}}, answer)
	for _, body := range []string{`{`, `{"choices":[]}`} {
		_, err := readLlamaCompletion([]byte(body))
		assert.Error(t, err)
	}
}
