package door_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/access"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/directory"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/door"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/metrics"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a front door with Pods whose engines are handlers of the test.
type world struct {
	t      *testing.T
	door   *door.Door
	dir    *directory.Directory
	own    *demand.Own
	tokens *access.Tokens
	url    string

	mu        sync.Mutex
	metrics   *metrics.Metrics
	transport *noting
	direct    bool              // what is sent is not noted, and so not read before it is sent
	engines   map[string]string // by the address of a Pod: where its engine listens
	sent      []string          // bodies, in the order in which the front door sends them
	pods      int
	held      chan int // how many requests wait, at each change
	listener  *demand.Listener
}

const namespace = "team"

var llama = types.NamespacedName{Namespace: namespace, Name: "llama"}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWithin(t, 0)
}

// newWorldWithin is newWorld with the time that bodies have.
func newWorldWithin(t *testing.T, bodyTime time.Duration) *world {
	t.Helper()
	w := &world{t: t, own: demand.NewOwn(), tokens: access.New(namespace, false), engines: map[string]string{}, held: make(chan int, 10_000)}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		w.mu.Lock()
		to := w.engines[address]
		w.mu.Unlock()
		if to == "" {
			return nil, fmt.Errorf("dial %s: connection refused", address)
		}
		return new(net.Dialer).DialContext(ctx, network, to)
	}}
	w.metrics, w.transport = metrics.New(w.own), &noting{w, transport}
	w.door, w.dir = door.New(door.Options{
		Own: w.own, Peers: nobody{}, Namespace: func(host string) string {
			if strings.HasPrefix(host, "other.") {
				return "other"
			}
			return namespace
		},
		Access: w.tokens, BodyTime: bodyTime,
		Transport: w.transport, SignEvery: 10 * time.Millisecond, Observer: w.metrics, Logger: slog.New(slog.DiscardHandler),
	})
	server := httptest.NewServer(w.door)
	w.url = server.URL
	counts := httptest.NewServer(w.own)
	hears := &http.Transport{}
	w.listener = demand.NewListener(demand.Options{Client: &http.Client{Transport: hears}, Logger: slog.New(slog.DiscardHandler), Changed: func([]types.NamespacedName) {
		count, _ := w.listener.Of(llama)
		w.held <- count.Held
	}})
	w.listener.Listen(map[string]string{"own": counts.URL})
	t.Cleanup(func() {
		w.listener.Close()
		w.door.Close()
		counts.Close()
		server.Close()
		transport.CloseIdleConnections()
		hears.CloseIdleConnections()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return w
}

// noting notes what is sent.
type noting struct {
	w *world
	http.RoundTripper
}

func (n *noting) RoundTrip(r *http.Request) (*http.Response, error) {
	if n.w.direct {
		return n.RoundTripper.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	n.w.mu.Lock()
	n.w.sent = append(n.w.sent, string(body))
	n.w.mu.Unlock()
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	return n.RoundTripper.RoundTrip(r)
}

type nobody struct{}

func (nobody) Of(types.NamespacedName) (demand.Count, bool) { return demand.Count{}, true }

func (w *world) model(change func(*v1alpha1.Model)) {
	m := &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: llama.Namespace, Name: llama.Name, Labels: map[string]string{"tier": "gold"}}}
	m.Specs = []v1alpha1.ModelEntry{{Name: "gpu"}, {Name: "cpu"}}
	m.Specs[1].TargetRequests = new(int32(0))
	if change != nil {
		change(m)
	}
	w.dir.SetModel(m)
}

// pod adds a Pod of an entry. A nil engine refuses connections.
func (w *world) pod(entry string, engine http.HandlerFunc) *corev1.Pod {
	w.t.Helper()
	w.mu.Lock()
	w.pods++
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: fmt.Sprintf("llama-%s-%d", entry, w.pods),
		Labels: map[string]string{podmeta.LabelModel: "llama", podmeta.LabelModelEntry: entry, podmeta.LabelServes: "llama"},
	}}
	pod.Status.PodIP = fmt.Sprintf("10.0.0.%d", w.pods)
	if engine != nil {
		server := httptest.NewServer(engine)
		w.t.Cleanup(server.Close)
		w.engines[pod.Status.PodIP+":8000"] = server.Listener.Addr().String()
	}
	w.mu.Unlock()
	w.dir.SetPod(pod)
	return pod
}

// answers is an engine that answers with its name and the body.
func answers(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Engine", name)
		_, _ = w.Write(body)
	}
}

const chat = `{"model": "llama", "messages": [{"role": "user", "content": "Who has the seat?"}]}`

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
}

func (w *world) ask(path, body string, header ...string) answer {
	w.t.Helper()
	return w.askWithin(w.t.Context(), path, body, header...)
}

func (w *world) askWithin(ctx context.Context, path, body string, header ...string) (a answer) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+path, strings.NewReader(body))
	if err != nil {
		return answer{body: err.Error()}
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{body: err.Error()}
	}
	defer func() { _ = got.Body.Close() }()
	text, _ := io.ReadAll(got.Body)
	return answer{got.StatusCode, got.Header, string(text)}
}

// awaitHeld waits until so many requests wait.
func (w *world) awaitHeld(n int) {
	w.t.Helper()
	for w.own.Of(llama).Held != n {
		select {
		case <-w.held:
		case <-w.t.Context().Done():
			require.Equal(w.t, n, w.own.Of(llama).Held)
		}
	}
}

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
		"another namespace":       {"/v1/chat/completions", chat, []string{"Host", "other.example.com"}, 404, "there is none here"},
		"a selector of no match":  {"/v1/chat/completions", chat, []string{"X-Label-Selector", "tier=silver"}, 404, "there is none here"},
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
