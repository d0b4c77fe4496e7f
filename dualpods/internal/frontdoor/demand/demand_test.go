package demand_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/spec/demandapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	llama = types.NamespacedName{Namespace: "team", Name: "llama"}
	qwen  = types.NamespacedName{Namespace: "team", Name: "qwen"}
)

// ear is a Listener whose changes a test waits for.
type ear struct {
	*demand.Listener
	changed chan struct{}
}

func listen(t *testing.T) *ear {
	t.Helper()
	e := &ear{changed: make(chan struct{}, 1000)}
	transport := &http.Transport{}
	e.Listener = demand.NewListener(demand.Options{
		Client: &http.Client{Transport: transport}, Logger: slog.New(slog.DiscardHandler),
		Changed: func([]types.NamespacedName) { e.changed <- struct{}{} },
	})
	t.Cleanup(func() { e.Close(); transport.CloseIdleConnections() })
	return e
}

// await waits until the requests for a Model are those that are wanted.
func (e *ear) await(t *testing.T, model types.NamespacedName, want demand.Count) {
	t.Helper()
	for {
		got, _ := e.Of(model)
		got.Ended = time.Time{} // when that was, only time tells
		if assert.ObjectsAreEqual(want, got) {
			return
		}
		select {
		case <-e.changed:
		case <-t.Context().Done():
			require.Equal(t, want, got)
		}
	}
}

func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

func TestListenerHearsEachChange(t *testing.T) {
	first, second := demand.NewOwn(), demand.NewOwn()
	waits := first.Request(llama)
	require.True(t, waits.Hold(1, 0)) // before anybody listens
	a, b := serve(t, first), serve(t, second)
	e := listen(t)
	e.Listen(map[string]string{"a": a.URL, "b": b.URL})
	e.await(t, llama, demand.Count{Held: 1})

	answered := second.Request(llama)
	answered.Enter("pod-1")
	second.Request(qwen).Enter("pod-2")
	e.await(t, llama, demand.Count{Held: 1, InFlight: map[string]int{"pod-1": 1}})
	waits.Leave()
	waits.Leave() // does nothing
	waits.Enter("pod-1")
	e.await(t, llama, demand.Count{InFlight: map[string]int{"pod-1": 2}})
	waits.Leave()
	answered.Leave()
	e.await(t, llama, demand.Count{})
	e.await(t, qwen, demand.Count{InFlight: map[string]int{"pod-2": 1}})
	_, all := e.Of(qwen)
	assert.True(t, all, "both have spoken")
	e.Listen(nil)
}

// stream is the client of a stream of reports. It notes the moment of each.
type stream struct {
	header  http.Header
	reports chan time.Time
}

func (s *stream) Header() http.Header         { return s.header }
func (s *stream) WriteHeader(int)             {}
func (s *stream) Write(b []byte) (int, error) { return len(b), nil }
func (s *stream) Flush()                      { s.reports <- time.Now() }

func TestFirstRequestThatWaitsIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, client := demand.NewOwn(), &stream{http.Header{}, make(chan time.Time, 100)}
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { defer close(over); own.ServeHTTP(client, httptest.NewRequestWithContext(ctx, "GET", "/", nil)) }()
		defer func() { stop(); <-over }()
		began := <-client.reports
		own.Request(llama).Enter("pod-1")
		synctest.Wait()
		require.True(t, own.Request(llama).Hold(2, 0))
		assert.Zero(t, (<-client.reports).Sub(began), "the first one that waits")
		require.True(t, own.Request(llama).Hold(2, 0))
		assert.Equal(t, 10*time.Millisecond, (<-client.reports).Sub(began), "the second one is told together with what else changes")
		own.Request(llama).Enter("pod-1")
		assert.Equal(t, 20*time.Millisecond, (<-client.reports).Sub(began))
		require.True(t, own.Request(qwen).Hold(2, 0))
		assert.Equal(t, 20*time.Millisecond, (<-client.reports).Sub(began))
	})
}

func TestRequestThatHasEndedIsKnownForASecond(t *testing.T) {
	own := demand.NewOwn()
	server := serve(t, own)
	e := listen(t)
	e.Listen(map[string]string{"a": server.URL})
	first := own.Request(qwen)
	first.Enter("pod-1")
	e.await(t, qwen, demand.Count{InFlight: map[string]int{"pod-1": 1}})
	brief := own.Request(llama)
	require.True(t, brief.Hold(1, 0))
	brief.Leave()
	hasEnded := func() bool { got, _ := e.Of(llama); return !got.Ended.IsZero() }
	for !hasEnded() {
		<-e.changed
	}
	e.await(t, llama, demand.Count{})
	assert.Eventually(t, func() bool { return !hasEnded() }, patience.Wait(), 10*time.Millisecond)
	got, _ := e.Of(qwen)
	assert.Zero(t, got.Ended)
}

func TestFrontDoorThatLeavesCountsNothing(t *testing.T) {
	own := demand.NewOwn()
	require.True(t, own.Request(llama).Hold(1, 0))
	server := serve(t, own)
	e := listen(t)
	e.Listen(map[string]string{"a": server.URL})
	e.await(t, llama, demand.Count{Held: 1})
	e.Listen(nil)
	e.await(t, llama, demand.Count{})
	e.Listen(map[string]string{"a": server.URL})
	e.await(t, llama, demand.Count{Held: 1})
	server.CloseClientConnections()
	e.await(t, llama, demand.Count{Held: 1}) // it is dialled again
	e.Listen(nil)
}

func TestSilentFrontDoorCountsNothing(t *testing.T) {
	own := demand.NewOwn()
	require.True(t, own.Request(llama).Hold(1, 0))
	var silent atomic.Bool
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !silent.CompareAndSwap(false, true) { // the first stream tells one report, and then nothing
			<-r.Context().Done()
			return
		}
		_, _ = w.Write([]byte(`{"whole":true,"models":[{"namespace":"team","name":"llama","held":3}]}` + "\n"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	e := listen(t)
	e.Listen(map[string]string{"a": server.URL + demandapi.Path})
	e.await(t, llama, demand.Count{Held: 3})
	e.await(t, llama, demand.Count{})
	_, all := e.Of(llama)
	assert.False(t, all, "it is silent")
	e.Listen(nil)
}

func TestRequestThatIsPassedOnIsCountedAtEachMoment(t *testing.T) {
	own := demand.NewOwn()
	r := own.Request(llama)
	require.True(t, r.Hold(10, 0))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 10_000 {
			r.Enter("pod")
			_ = r.Hold(10, 0)
		}
	}()
	for passing := true; passing; {
		select {
		case <-done:
			passing = false
		default:
		}
		require.Equal(t, 1, own.Of(llama).Total())
	}
	r.Leave()
	assert.Empty(t, own.All())
}

func TestNoMoreRequestsWaitThanMayThoughAllComeAtOnce(t *testing.T) {
	own := demand.NewOwn()
	held := make(chan bool)
	for range 100 {
		go func() { held <- own.Request(llama).Hold(10, 3) }()
	}
	n := 0
	for range 100 {
		if <-held {
			n++
		}
	}
	assert.Equal(t, 7, n, "three wait at other front doors")
	assert.False(t, demand.NewOwn().Request(llama).Hold(0, 0))
}

func TestRefusedRequestCountsUntilItsClientMayHaveComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := demand.NewOwn()
		own.Refuse(llama, 10*time.Second)
		time.Sleep(9 * time.Second)
		own.Refuse(llama, 10*time.Second)
		assert.Equal(t, []int{1, 1}, []int{own.Of(llama).Waiting(), own.Of(llama).Total()}, "together they are one")
		r := own.Request(llama)
		r.Enter("pod")
		assert.Equal(t, []int{0, 1}, []int{own.Of(llama).Waiting(), own.Of(llama).Total()}, "another one counts instead")
		r.Leave()
		time.Sleep(9 * time.Second)
		assert.Equal(t, 1, own.Of(llama).Total(), "the second refusal is younger")
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Empty(t, own.All())
	})
}

func TestRefusalsAtSeveralFrontDoorsCountOnce(t *testing.T) {
	first, second := demand.NewOwn(), demand.NewOwn()
	first.Refuse(llama, time.Hour)
	a, b := serve(t, first), serve(t, second)
	e := listen(t)
	e.Listen(map[string]string{"a": a.URL, "b": b.URL})
	e.await(t, llama, demand.Count{Refused: true})
	second.Refuse(llama, time.Hour)
	require.True(t, second.Request(qwen).Hold(1, 0)) // which is told no earlier
	e.await(t, qwen, demand.Count{Held: 1})
	total, _ := e.Of(llama)
	assert.Equal(t, 1, total.Total())
	e.Listen(nil)
}

// A front door of another version may leave out that its first report is whole.
func TestFirstReportIsTakenForWhole(t *testing.T) {
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"models":[{"namespace":"team","name":"llama","held":3}]}` + "\n"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	e := listen(t)
	e.Listen(map[string]string{"a": server.URL + demandapi.Path})
	e.await(t, llama, demand.Count{Held: 3})
	e.Listen(nil)
}
