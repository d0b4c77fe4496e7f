package gateway

import (
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/patience"
)

// requireClosed waits until the proxy closes a connection.
func requireClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience.Wait())))
	_, err := io.Copy(io.Discard, conn)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection stays open")
}

func TestIdleConnectionsOfClientsAreBoundedForAllPortsTogether(t *testing.T) {
	engine := newEngine(t, echo)
	clients := NewClients(3)
	one := openProxy(t, engine.URL, func(o *Options) { o.Clients = clients })
	other := newProxy(t, engine.URL, func(o *Options) { o.Clients = clients })
	client := newClient(t)
	held := goPost(t, client, other.url("/v1/completions"), "held")
	eventually(t, func() bool { return other.Held() == 1 })
	oldest := dialRaw(t, one.address())
	eventually(t, func() bool { return clients.count() == 2 })
	used := dialRaw(t, one.address())
	eventually(t, func() bool { return clients.count() == 3 })
	_, err := io.WriteString(used, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	_, err = io.ReadFull(used, make([]byte, 15))
	require.NoError(t, err)
	eventually(t, func() bool { return clients.idleCount() == 2 }) // the request is over some time after its answer began

	newest := dialRaw(t, one.address())
	requireClosed(t, oldest)
	another := dialRaw(t, one.address())
	requireClosed(t, used)
	require.Equal(t, http.StatusOK, get(t, newClient(t), one.url("/health")).status, "in place of the newest")
	requireClosed(t, newest)
	dialRaw(t, one.address())
	requireClosed(t, another)

	other.Open()
	require.Equal(t, "held", receive(t, held).body, "who carries a request stays")
}

func TestNewConnectionIsClosedWhereEachCarriesARequest(t *testing.T) {
	engine := newEngine(t, echo)
	p := newProxy(t, engine.URL, func(o *Options) { o.Clients = NewClients(2) })
	first, second := goPost(t, newClient(t), p.url("/v1/completions"), "one"), goPost(t, newClient(t), p.url("/v1/completions"), "two")
	eventually(t, func() bool { return p.Held() == 2 })
	requireClosed(t, dialRaw(t, p.address()))
	p.Open()
	require.Equal(t, "one", receive(t, first).body)
	require.Equal(t, "two", receive(t, second).body)
}

// idleCount is how many connections carry no request.
func (c *Clients) idleCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idle.Len()
}

// count is how many connections are open.
func (c *Clients) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}
