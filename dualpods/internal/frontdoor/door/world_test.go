package door_test

import (
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
		Transport: w.transport, SignEvery: 300 * time.Millisecond, Observer: w.metrics, Logger: slog.New(slog.DiscardHandler),
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
