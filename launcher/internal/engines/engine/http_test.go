package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeVLLM answers as vLLM 0.30.0 was seen to, and records what it was asked.
type fakeVLLM struct {
	*httptest.Server
	mu       sync.Mutex
	calls    []string
	asleep   map[string]bool // by tag
	instead  map[string]http.HandlerFunc
	requests []*http.Request
}

func newFakeVLLM(t *testing.T) *fakeVLLM {
	t.Helper()
	f := &fakeVLLM{asleep: map[string]bool{}, instead: map[string]http.HandlerFunc{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeVLLM) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	call := strings.TrimSpace(r.Method + " " + r.URL.RequestURI() + " " + string(body))
	f.mu.Lock()
	f.calls = append(f.calls, call)
	f.requests = append(f.requests, r)
	instead := f.instead[r.URL.RequestURI()]
	f.mu.Unlock()
	if instead != nil {
		instead(w, r)
		return
	}
	f.answer(w, r)
}

func (f *fakeVLLM) answer(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.Method + " " + r.URL.Path {
	case "GET /health", "POST /collective_rpc":
	case "GET /is_sleeping":
		fmt.Fprintf(w, `{"is_sleeping":%v}`, len(f.asleep) > 0)
	case "POST /sleep":
		f.asleep = map[string]bool{"weights": true, "kv_cache": true}
	case "POST /wake_up":
		for _, tag := range r.URL.Query()["tags"] {
			delete(f.asleep, tag)
		}
		if !r.URL.Query().Has("tags") {
			f.asleep = map[string]bool{}
		}
	case "POST /reset_prefix_cache":
		fmt.Fprint(w, `{"success":true}`)
	case "POST /v1/completions":
		fmt.Fprint(w, `{"choices":[{"index":0,"text":"!","finish_reason":"length"}]}`)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"detail":"Not Found"}`)
	}
}

// on has a path (with its query) answered otherwise.
func (f *fakeVLLM) on(uri string, handler http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instead[uri] = handler
}

func (f *fakeVLLM) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

func (f *fakeVLLM) lastRequest() *http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests[len(f.requests)-1]
}

func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

func answering(body string) http.HandlerFunc { return status(http.StatusOK, body) }

// hang answers nothing until the client has gone.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func newAdapter(t *testing.T) *VLLM {
	t.Helper()
	v := NewVLLM(VLLMOptions{})
	t.Cleanup(v.Close)
	return v
}

func TestAnEngineIsReadyWhenItsHealthIs200(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	require.NoError(t, v.Ready(t.Context(), f.URL))
	assert.Equal(t, []string{"GET /health"}, f.asked())
}

func TestADeadEngineCoreIsTold(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	f.on("/health", status(http.StatusServiceUnavailable, ""))
	err := v.Ready(t.Context(), f.URL)
	var bad *StatusError
	require.ErrorAs(t, err, &bad)
	assert.Equal(t, http.StatusServiceUnavailable, bad.Status)
	assert.Equal(t, "GET /health answered 503 Service Unavailable", err.Error())
	assert.False(t, Refused(err))
}

func TestAnEngineThatDoesNotListenYetIsToldFromABadOne(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	base := "http://" + listener.Addr().String()
	require.NoError(t, listener.Close())
	err = newAdapter(t).Ready(t.Context(), base)
	assert.True(t, Refused(err), err)
}

func TestAHangingEngineHoldsACallNoLongerThanItsContext(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	for _, uri := range []string{"/health", "/is_sleeping", "/sleep?level=1", "/wake_up", "/v1/completions"} {
		f.on(uri, hang)
	}
	calls := map[string]func(context.Context) error{
		"ready": func(ctx context.Context) error { return v.Ready(ctx, f.URL) },
		"is sleeping": func(ctx context.Context) error {
			_, err := v.IsSleeping(ctx, f.URL)
			return err
		},
		"sleep":  func(ctx context.Context) error { return v.Sleep(ctx, f.URL, 1, true) },
		"wake 1": func(ctx context.Context) error { return v.Wake(ctx, f.URL, 1, true) },
		"wake 2": func(ctx context.Context) error { return v.Wake(ctx, f.URL, 2, true) },
		"probe": func(ctx context.Context) error {
			_, err := v.Probe(ctx, f.URL, "m", "", "")
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, call(ctx), context.DeadlineExceeded)
		})
	}
}

func TestAnAnswerThatHangsInItsMiddleEndsWithTheContext(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	ctx, cancel := context.WithCancel(t.Context())
	f.on("/is_sleeping", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"is_`)
		_ = http.NewResponseController(w).Flush()
		cancel()
		<-r.Context().Done()
	})
	_, err := v.IsSleeping(ctx, f.URL)
	require.ErrorIs(t, err, context.Canceled)
}

func TestSleepAsksForTheLevelAndMakesSure(t *testing.T) {
	for level := 1; level <= 2; level++ {
		f, v := newFakeVLLM(t), newAdapter(t)
		require.NoError(t, v.Sleep(t.Context(), f.URL, level, true))
		assert.Equal(t, []string{fmt.Sprintf("POST /sleep?level=%d", level), "GET /is_sleeping"}, f.asked())
		require.NoError(t, v.Sleep(t.Context(), f.URL, level, true), "sleeping twice is no error")
	}
}

func TestALevelThatDoesNotExistNeverReachesTheEngine(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	for _, level := range []int{-1, 0, 3} {
		require.ErrorContains(t, v.Sleep(t.Context(), f.URL, level, true), fmt.Sprintf("sleep level %d does not exist", level))
		require.ErrorContains(t, v.Wake(t.Context(), f.URL, level, true), fmt.Sprintf("sleep level %d does not exist", level))
	}
	assert.Empty(t, f.asked())
}

func TestAnEngineThatOnlySaysYesToSleepIsFoundOut(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	f.on("/sleep?level=1", answering(""))
	require.EqualError(t, v.Sleep(t.Context(), f.URL, 1, true),
		"cannot put the engine to sleep at level 1: the engine reports that it is still awake")
}

func TestAFailedSleepSaysWhatTheEngineSaid(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	f.on("/sleep?level=2", status(http.StatusInternalServerError, "CUDA error:\n  out of memory\xff"+strings.Repeat("x", 1<<16)))
	err := v.Sleep(t.Context(), f.URL, 2, true)
	var bad *StatusError
	require.ErrorAs(t, err, &bad)
	assert.Contains(t, err.Error(), "cannot put the engine to sleep at level 2: POST /sleep?level=2 answered 500 Internal Server Error: CUDA error: out of memoryx")
	assert.Less(t, len(err.Error()), 500)
}

func TestWakeFromLevel1IsOneCallAndMakesSure(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	require.NoError(t, v.Sleep(t.Context(), f.URL, 1, true))
	require.NoError(t, v.Wake(t.Context(), f.URL, 1, true))
	assert.Equal(t, []string{"POST /wake_up", "GET /is_sleeping"}, f.asked()[2:])
	require.NoError(t, v.Wake(t.Context(), f.URL, 1, true), "waking twice is no error")
}

func TestWakeFromLevel2LoadsTheWeightsBeforeTheCache(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	require.NoError(t, v.Sleep(t.Context(), f.URL, 2, true))
	require.NoError(t, v.Wake(t.Context(), f.URL, 2, true))
	assert.Equal(t, []string{
		"GET /is_sleeping",
		"POST /wake_up?tags=weights",
		`POST /collective_rpc {"method":"reload_weights"}`,
		"POST /wake_up?tags=kv_cache",
		"POST /reset_prefix_cache",
		"GET /is_sleeping",
	}, f.asked()[2:])
	assert.Equal(t, "application/json", f.requests[4].Header.Get("Content-Type"))
}

func TestWeightsAreNotLoadedUnderAnEngineThatIsAwake(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	require.NoError(t, v.Wake(t.Context(), f.URL, 2, false))
	assert.Equal(t, []string{"GET /is_sleeping"}, f.asked())
}

func TestWithoutACheckASleepAndAWakeAreOneCallEach(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	require.NoError(t, v.Sleep(t.Context(), f.URL, 1, false))
	require.NoError(t, v.Wake(t.Context(), f.URL, 1, false))
	assert.Equal(t, []string{"POST /sleep?level=1", "POST /wake_up"}, f.asked())
}

func TestAWakeFailsAtTheStepThatFails(t *testing.T) {
	tests := []struct {
		level int
		uri   string
		with  http.HandlerFunc
		want  string
		calls int // of the wake, in all
	}{
		{1, "/wake_up", status(500, "boom"), "cannot wake the engine from level 1: POST /wake_up answered 500 Internal Server Error: boom", 1},
		{1, "/wake_up", answering(""), "cannot wake the engine from level 1: the engine reports that it still sleeps", 2},
		{2, "/is_sleeping", status(500, ""), "cannot wake the engine from level 2: GET /is_sleeping answered 500 Internal Server Error", 1},
		{2, "/is_sleeping", answering("{}"), `cannot wake the engine from level 2: GET /is_sleeping answered "{}"`, 1},
		{2, "/is_sleeping", answering("no JSON"), `cannot wake the engine from level 2: GET /is_sleeping answered "no JSON"`, 1},
		{2, "/wake_up?tags=weights", status(500, ""), "cannot wake the engine from level 2: POST /wake_up?tags=weights answered 500 Internal Server Error", 2},
		{2, "/collective_rpc", status(500, ""), "cannot wake the engine from level 2: POST /collective_rpc answered 500 Internal Server Error", 3},
		{2, "/wake_up?tags=kv_cache", status(500, ""), "cannot wake the engine from level 2: POST /wake_up?tags=kv_cache answered 500 Internal Server Error", 4},
		{2, "/reset_prefix_cache", answering(`{"success":false}`), `cannot wake the engine from level 2: POST /reset_prefix_cache answered "{\"success\":false}"`, 5},
		{2, "/wake_up?tags=kv_cache", answering(""), "cannot wake the engine from level 2: the engine reports that it still sleeps", 6},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			f, v := newFakeVLLM(t), newAdapter(t)
			require.NoError(t, v.Sleep(t.Context(), f.URL, tt.level, true))
			f.on(tt.uri, tt.with)
			require.EqualError(t, v.Wake(t.Context(), f.URL, tt.level, true), tt.want)
			assert.Len(t, f.asked(), 2+tt.calls)
		})
	}
}

func TestAnOlderReleaseResetsItsPrefixCacheWithoutABody(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	require.NoError(t, v.Sleep(t.Context(), f.URL, 2, true))
	f.on("/reset_prefix_cache", answering(""))
	require.NoError(t, v.Wake(t.Context(), f.URL, 2, true))
}

func TestARedirectIsNotFollowed(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	f.on("/health", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/is_sleeping", http.StatusFound) })
	require.ErrorContains(t, v.Ready(t.Context(), f.URL), "answered 302")
	assert.Equal(t, []string{"GET /health"}, f.asked())
}

func TestAnEndlessAnswerIsNotReadToItsEnd(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	f.on("/is_sleeping", func(w http.ResponseWriter, r *http.Request) {
		chunk := []byte(strings.Repeat(" ", 1<<16))
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	_, err := v.IsSleeping(t.Context(), f.URL)
	require.ErrorContains(t, err, "GET /is_sleeping answered")
}

func TestCallsShareOneConnection(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	connections := map[string]bool{}
	for range 5 {
		require.NoError(t, v.Sleep(t.Context(), f.URL, 2, true))
		require.NoError(t, v.Wake(t.Context(), f.URL, 2, true))
		connections[f.lastRequest().RemoteAddr] = true
	}
	assert.Len(t, connections, 1)
}

func TestASleepIsRepeatedWhenTheEngineClosedTheIdleConnection(t *testing.T) {
	base := closingServer(t)
	v := newAdapter(t)
	require.NoError(t, v.Ready(t.Context(), base))
	require.NoError(t, v.Sleep(t.Context(), base, 1, true))
}

// closingServer answers the first request of each connection, and closes it
// when the second one comes, as a server does whose patience just ended.
func closingServer(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		wg.Wait()
	})
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			wg.Go(func() {
				defer func() { _ = conn.Close() }()
				reader := bufio.NewReader(conn)
				if _, err := http.ReadRequest(reader); err != nil {
					return
				}
				body := `{"is_sleeping":true}`
				fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				_, _ = reader.ReadByte()
			})
		}
	})
	return "http://" + listener.Addr().String()
}
