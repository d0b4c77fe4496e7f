package connlimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a server whose connections are bounded. GET /held waits until release.
type site struct {
	t       *testing.T
	limit   *Limit
	address string
	bodies  chan struct{} // gets an element for each request whose body is awaited
	held    chan struct{} // gets an element for each request that waits
	release func()
}

func newSite(t *testing.T, most int) *site {
	t.Helper()
	s := &site{t: t, limit: New(most), bodies: make(chan struct{}, 100), held: make(chan struct{}, 100)}
	released := make(chan struct{})
	s.release = sync.OnceFunc(func() { close(released) })
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 0 {
			came := AwaitBody(r)
			s.bodies <- struct{}{}
			_, _ = io.Copy(io.Discard, r.Body)
			came()
		}
		if r.URL.Path == "/held" {
			s.held <- struct{}{}
			select {
			case <-released:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, "OK")
	}))
	s.limit.Watch(server.Config)
	server.Start()
	s.address = server.Listener.Addr().String()
	t.Cleanup(func() { s.release(); server.CloseClientConnections(); server.Close() })
	return s
}

// from connects from an address of loopback, and sends the beginning of a request.
func (s *site) from(address, text string) net.Conn {
	s.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := dialer.DialContext(s.t.Context(), "tcp", s.address)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() }) // some tests close it themselves
	require.NoError(s.t, conn.SetDeadline(time.Now().Add(patience.Wait())))
	_, _ = io.WriteString(conn, text) // the server may have closed it
	return conn
}

// await waits for an element.
func (s *site) await(from <-chan struct{}) {
	s.t.Helper()
	select {
	case <-from:
	case <-time.After(patience.Wait()):
		require.FailNow(s.t, "the request does not arrive")
	}
}

// holds connects and has a request wait.
func (s *site) holds(address string) net.Conn {
	s.t.Helper()
	conn := s.from(address, "GET /held HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	s.await(s.held)
	return conn
}

func (s *site) requireAnswer(address string) {
	s.t.Helper()
	conn := s.from(address, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	s.requireOK(conn)
}

func (s *site) requireOK(conn net.Conn) {
	s.t.Helper()
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(s.t, err)
	require.NoError(s.t, answer.Body.Close())
	require.Equal(s.t, http.StatusOK, answer.StatusCode)
}

func (s *site) requireClosed(conn net.Conn) {
	s.t.Helper()
	_, err := io.Copy(io.Discard, conn)
	require.NotErrorIs(s.t, err, os.ErrDeadlineExceeded, "the connection stays open")
}

func (s *site) awaitCounts(open, idle int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		o, i := s.limit.Counts()
		return o == open && i == idle
	}, patience.Wait(), time.Millisecond)
}

func TestOldestConnectionWithoutRequestIsClosedFirst(t *testing.T) {
	for name, text := range map[string]string{
		"silent":        "",
		"half a header": "GET / HTTP/1.1\r\nHost:",
		"half a body":   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf",
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 3)
			opens := func() net.Conn {
				conn := s.from("127.0.0.1", text)
				if name == "half a body" {
					s.await(s.bodies)
				}
				return conn
			}
			busy := s.holds("127.0.0.1")
			oldest := opens()
			s.awaitCounts(2, 1)
			opens()
			s.awaitCounts(3, 2)
			opens()
			s.requireClosed(oldest)
			s.requireAnswer("127.0.0.1")
			s.release()
			s.requireOK(busy)
		})
	}
}

func TestAddressWithMostConnectionsLosesItsNewest(t *testing.T) {
	s := newSite(t, 3)
	first, second, third := s.holds("127.0.0.2"), s.holds("127.0.0.2"), s.holds("127.0.0.2")
	s.requireClosed(s.from("127.0.0.2", "")) // its own newest
	other := s.holds("127.0.0.3")
	s.requireClosed(third)
	s.requireAnswer("127.0.0.4")
	s.requireClosed(second)
	s.awaitCounts(2, 0)
	last := s.holds("127.0.0.4")
	s.requireClosed(s.from("127.0.0.2", "")) // it has its share already
	s.release()
	for _, conn := range []net.Conn{first, other, last} {
		s.requireOK(conn)
	}
}

func TestConnectionsThatEndAreNotCounted(t *testing.T) {
	s := newSite(t, 2)
	held := s.holds("127.0.0.1")
	for range 10 {
		s.requireAnswer("127.0.0.1")
		s.awaitCounts(1, 0)
	}
	require.NoError(t, held.Close())
	s.awaitCounts(0, 0)
	require.Empty(t, s.limit.addresses)
}

func TestShareOfTheDescriptorsHasBounds(t *testing.T) {
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	assert.Equal(t, 16, Share(limit.Cur))
	assert.Equal(t, int(min(max(limit.Cur, 16), 1024)), Share(1))
}
