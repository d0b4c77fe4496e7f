package nodeview

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestErrorTextStaysTheSameAcrossResetConnections(t *testing.T) {
	var resets atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		assert.NoError(t, conn.(*net.TCPConn).SetLinger(0))
		assert.NoError(t, conn.Close())
		resets.Add(1)
	}))
	t.Cleanup(server.Close)
	var mu sync.Mutex
	said := map[string]bool{}
	var s *Set
	s = New(Options{Changed: func(key string) {
		mu.Lock()
		defer mu.Unlock()
		said[s.View(key).Why] = true
	}})
	t.Cleanup(s.Close)
	s.Watch("one", Target{Address: strings.TrimPrefix(server.URL, "http://")})
	require.Eventually(t, func() bool { return resets.Load() > 5 }, patience.Wait(), firstPause)
	mu.Lock()
	defer mu.Unlock()
	assert.Len(t, said, 1)
	for why := range said {
		assert.Contains(t, why, strings.TrimPrefix(server.URL, "http://"), "the launcher's address stays")
	}
}

func TestRedirectOfALauncherIsNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the controller was sent to %s", r.URL)
	}))
	t.Cleanup(elsewhere.Close)
	launcher := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(launcher.Close)
	s := newSet(t, Options{})
	s.Watch("one", Target{Address: strings.TrimPrefix(launcher.URL, "http://"), Access: Access{Token: "secret"}})
	v := s.until("the redirect is an error", "one", func(v View) bool { return v.Why != firstWords && v.Why != "" })
	assert.Contains(t, v.Why, "307")
}

// endless is a launcher whose stream has one event after the other, as fast as they are
// read.
func endless(t *testing.T) Target {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(path, text string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	answer("/v2/gpus", `{"gpus": []}`)
	answer("/v2/vllm/instances", `{"instances": [], "revision": 1}`)
	mux.HandleFunc("/v2/vllm/instances/watch", func(w http.ResponseWriter, _ *http.Request) {
		for n := 2; ; n++ {
			if _, err := fmt.Fprintf(w, `{"type": "UPDATED", "object": {"instance_id": "a", "revision": %d}}`+"\n", n); err != nil {
				return
			}
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return Target{Address: strings.TrimPrefix(server.URL, "http://")}
}

func TestEndlessStreamIsReadAtABoundedRate(t *testing.T) {
	target := endless(t) // which ends after the Set
	var changes atomic.Int64
	s := New(Options{Changed: func(string) { changes.Add(1) }})
	t.Cleanup(s.Close)
	begun := time.Now()
	s.Watch("one", target)
	const beyond = eventsPerSecond / 2
	require.Eventually(t, func() bool { return changes.Load() >= eventsAtOnce+beyond }, patience.Wait(), firstPause)
	assert.GreaterOrEqual(t, time.Since(begun), time.Second/3, "what comes after the first burst waits")
}

func TestRefusedLauncherIsNotCalled(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the launcher was called: %s", r.URL)
	}))
	t.Cleanup(server.Close)
	s := newSet(t, Options{})
	s.Watch("one", Target{Address: strings.TrimPrefix(server.URL, "http://"), Access: Access{Refused: "it mounts no Secret"}, Models: true})
	v := s.until("the View says why", "one", func(v View) bool { return v.Why != firstWords })
	assert.Equal(t, "it is not called: it mounts no Secret", v.Why)
	assert.False(t, v.Connected)
}
