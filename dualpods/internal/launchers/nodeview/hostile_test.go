package nodeview

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/patience"
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
