package door_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestRequestGoesToAPodThatServes(t *testing.T) {
	w := newWorld(t)
	w.model(nil)
	w.pod("gpu", answers("a"))
	got := w.ask("/v1/chat/completions", chat, "X-Request-Id", "mine")
	assert.Equal(t, http.StatusOK, got.status)
	assert.Equal(t, chat, got.body)
	assert.Equal(t, []string{"a", "mine"}, []string{got.header.Get("X-Engine"), got.header.Get("X-Request-Id")})
	assert.Zero(t, w.own.Of(llama).Total())
}

func TestRequestIsHeldUntilAPodServes(t *testing.T) {
	w := newWorld(t)
	w.model(func(m *v1alpha1.Model) { m.Spec.Features = []v1alpha1.ModelFeature{"TextGeneration", "TextEmbedding"} })
	large := fmt.Sprintf(`{"model": "llama", "input": %q}`, strings.Repeat("x", 1<<20))
	got := make(chan answer)
	for path, body := range map[string]string{"/v1/chat/completions": chat, "/v1/embeddings": large, "/v1/messages": chat} {
		go func() { got <- w.askWithin(t.Context(), path, body) }()
	}
	w.awaitHeld(3)
	w.pod("gpu", answers("a"))
	for range 3 {
		assert.Equal(t, http.StatusOK, (<-got).status)
	}
}

func TestHeldRequestsPassInTheirOrder(t *testing.T) {
	w := newWorld(t)
	w.model(nil)
	const n = 100
	got := make(chan answer)
	for i := range n {
		body := fmt.Sprintf(`{"model": "llama", "prompt": "%d"}`, i)
		go func() { got <- w.askWithin(t.Context(), "/v1/completions", body) }()
		w.awaitHeld(i + 1)
	}
	w.pod("gpu", answers("a"))
	for range n {
		assert.Equal(t, http.StatusOK, (<-got).status)
	}
	require.Len(t, w.sent, n)
	for i, body := range w.sent {
		require.Equal(t, fmt.Sprintf(`{"model": "llama", "prompt": "%d"}`, i), body)
	}
}

func TestNoMoreRequestsWaitThanMay(t *testing.T) {
	w := newWorld(t)
	w.model(func(m *v1alpha1.Model) {
		m.Spec.Hold = &v1alpha1.ModelHold{Max: new(int32(2)), TimeoutSeconds: new(int32(3600))}
	})
	got := make(chan answer)
	leaves, leave := context.WithCancel(t.Context())
	go func() { got <- w.askWithin(leaves, "/v1/chat/completions", chat) }()
	w.awaitHeld(1)
	go func() { got <- w.askWithin(t.Context(), "/v1/chat/completions", chat) }()
	w.awaitHeld(2)
	full := w.ask("/v1/chat/completions", chat)
	assert.Equal(t, http.StatusTooManyRequests, full.status)
	assert.Equal(t, "10", full.header.Get("Retry-After"))
	assert.Contains(t, full.body, "2 requests wait for the model llama")

	leave() // its place is free then
	assert.Contains(t, (<-got).body, "context canceled")
	w.awaitHeld(1)
	go func() { got <- w.askWithin(t.Context(), "/v1/chat/completions", chat) }()
	w.awaitHeld(2)
	seen := make(chan struct{}, 10)
	w.pod("gpu", func(http.ResponseWriter, *http.Request) { seen <- struct{}{} })
	for range 2 {
		assert.Equal(t, http.StatusOK, (<-got).status)
	}
	assert.Len(t, seen, 2, "no engine sees the request whose client left")
}

func TestRequestThatMayNotWaitIsRefusedAndStartsItsModel(t *testing.T) {
	w := newWorld(t)
	w.model(func(m *v1alpha1.Model) { m.Spec.Hold = &v1alpha1.ModelHold{Max: new(int32(0))} })
	for range 3 {
		got := w.ask("/v1/chat/completions", chat)
		assert.Equal(t, http.StatusTooManyRequests, got.status)
		assert.Equal(t, "10", got.header.Get("Retry-After"))
		assert.Contains(t, got.body, "hold.max of the Model lets no request wait")
	}
	assert.Equal(t, 1, w.own.Of(llama).Total(), "the controller hears of it")
	w.pod("gpu", answers("a"))
	assert.Equal(t, http.StatusOK, w.ask("/v1/chat/completions", chat).status)
}

func TestRequestThatWaitsTooLongIsRefused(t *testing.T) {
	w := newWorld(t)
	w.model(func(m *v1alpha1.Model) { m.Spec.Hold = &v1alpha1.ModelHold{TimeoutSeconds: new(int32(1))} })
	got := w.ask("/v1/chat/completions", chat)
	assert.Equal(t, http.StatusServiceUnavailable, got.status)
	assert.NotEmpty(t, got.header.Get("Retry-After"))
	assert.Contains(t, got.body, "the request waited for 1s, and no replica serves llama yet")
}

func TestRequestsThatWaitAreRefusedAtTheEnd(t *testing.T) {
	w := newWorld(t)
	w.model(nil)
	got := make(chan answer)
	go func() { got <- w.askWithin(t.Context(), "/v1/chat/completions", chat) }()
	w.awaitHeld(1)
	w.door.Close()
	assert.Equal(t, http.StatusServiceUnavailable, (<-got).status)
	assert.Equal(t, http.StatusServiceUnavailable, w.ask("/v1/chat/completions", chat).status)
}

func TestMistakesTouchNoPod(t *testing.T) {
	w := newWorld(t)
	w.model(func(m *v1alpha1.Model) { m.Spec.Aliases = []string{"gpt-4o"} })
	w.pod("gpu", func(http.ResponseWriter, *http.Request) { t.Error("a Pod was asked") })
	for name, tt := range map[string]struct {
		path, body string
		header     []string
		status     int
		want       string
	}{
		"an unknown model":        {"/v1/chat/completions", `{"model": "lama"}`, nil, 404, "did you mean llama?"},
		"no model":                {"/v1/chat/completions", `{}`, nil, 400, "model"},
		"no JSON":                 {"/v1/chat/completions", `model: llama`, nil, 400, "JSON"},
		"a model of no string":    {"/v1/chat/completions", `{"model": 1}`, nil, 400, "model"},
		"another namespace":       {"/v1/chat/completions", chat, []string{"Host", "other.example.com"}, 404, "there are no models in the namespace"},
		"a selector of no match":  {"/v1/chat/completions", chat, []string{"X-Label-Selector", "tier=silver"}, 404, "there are no models in the namespace"},
		"a selector that is none": {"/v1/chat/completions", chat, []string{"X-Label-Selector", "=="}, 400, "X-Label-Selector is no label selector"},
		"a feature it has not":    {"/v1/embeddings", chat, nil, 400, "/v1/embeddings is for models with the feature TextEmbedding; llama has TextGeneration"},
		"a path beyond the list":  {"/collective_rpc", chat, nil, 404, "POST /collective_rpc is not served here"},
		"another content type":    {"/v1/chat/completions", chat, []string{"Content-Type", "text/plain"}, 400, "the content type must be"},
	} {
		t.Run(name, func(t *testing.T) {
			got := w.ask(tt.path, tt.body, tt.header...)
			assert.Equal(t, tt.status, got.status, got.body)
			assert.Contains(t, got.body, tt.want)
			assert.Contains(t, got.body, `"error"`)
			assert.Zero(t, w.own.Of(llama).Total())
		})
	}
	assert.Equal(t, 404, w.ask("/v1/chat/completions", chat, "X-Label-Selector", "tier=silver").status)
}

func TestStandbyAnswersOnlyWhileNothingElseServes(t *testing.T) {
	w := newWorld(t)
	w.model(nil)
	w.pod("cpu", answers("standby"))
	assert.Equal(t, "standby", w.ask("/v1/chat/completions", chat).header.Get("X-Engine"))
	gpu := w.pod("gpu", answers("gpu"))
	for range 1000 {
		require.Equal(t, "gpu", w.ask("/v1/chat/completions", chat).header.Get("X-Engine"))
	}
	w.dir.DeletePod(types.NamespacedName{Namespace: namespace, Name: gpu.Name})
	assert.Equal(t, "standby", w.ask("/v1/chat/completions", chat).header.Get("X-Engine"))
}

func TestRequestThatNobodyBeganToAnswerIsTriedElsewhere(t *testing.T) {
	reset := func(w http.ResponseWriter, _ *http.Request) {
		connection, _, _ := http.NewResponseController(w).Hijack()
		_ = connection.(*net.TCPConn).SetLinger(0)
		_ = connection.Close()
	}
	unbound := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(launcherapi.HeaderRefused, "failed")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	for name, bad := range map[string]http.HandlerFunc{"a connection that is refused": nil, "a connection that is reset": reset, "a launcher that refuses": unbound} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.model(nil)
			w.pod("gpu", bad)
			w.pod("gpu", answers("good"))
			for range 20 {
				got := w.ask("/v1/chat/completions", chat)
				require.Equal(t, http.StatusOK, got.status)
				require.Equal(t, []string{"good", chat}, []string{got.header.Get("X-Engine"), got.body})
			}
		})
	}
	t.Run("three that fail", func(t *testing.T) {
		w := newWorld(t)
		w.model(nil)
		for range 5 {
			w.pod("gpu", reset)
		}
		got := w.ask("/v1/chat/completions", chat)
		assert.Equal(t, http.StatusBadGateway, got.status)
		assert.Contains(t, got.body, "3 replicas of llama failed to answer")
	})
}

func TestAnswersOfEnginesPassUnchanged(t *testing.T) {
	w := newWorld(t)
	w.model(nil)
	for _, status := range []int{200, 400, 404, 422, 429, 500, 503} {
		pod := w.pod("gpu", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Mark", "m")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"of": "the engine"}`))
		})
		got := w.ask("/v1/chat/completions", chat)
		assert.Equal(t, status, got.status)
		assert.Equal(t, []string{"m", `{"of": "the engine"}`}, []string{got.header.Get("X-Mark"), got.body})
		w.dir.DeletePod(types.NamespacedName{Namespace: namespace, Name: pod.Name})
	}
}

// The answer that has begun is cut, and is not asked for again.
func TestAnswerThatBreaksOffIsCut(t *testing.T) {
	w := newWorld(t)
	w.model(nil)
	asked := make(chan struct{}, 10)
	breaks := func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		_, _ = w.Write([]byte("data: 1\n\n"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	w.pod("gpu", breaks)
	w.pod("gpu", breaks)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/v1/chat/completions", strings.NewReader(chat))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	got, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	text, err := io.ReadAll(got.Body)
	assert.Error(t, err)
	assert.Equal(t, "data: 1\n\n", string(text))
	require.NoError(t, got.Body.Close())
	assert.Len(t, asked, 1)
}

func TestStreamComesPieceByPiece(t *testing.T) {
	w := newWorld(t)
	w.model(nil)
	more := make(chan struct{})
	w.pod("gpu", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-more
		}
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/v1/chat/completions", strings.NewReader(chat))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	got, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	in := bufio.NewScanner(got.Body)
	for i := range 3 {
		require.True(t, in.Scan())
		assert.Equal(t, fmt.Sprintf("data: %d", i), in.Text())
		require.True(t, in.Scan())
		assert.Equal(t, map[string]int{"llama-gpu-1": 1}, w.own.Of(llama).InFlight)
		more <- struct{}{}
	}
	require.NoError(t, got.Body.Close())
}
