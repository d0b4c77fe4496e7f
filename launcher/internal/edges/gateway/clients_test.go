package gateway

import (
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/connlimit"
	"hotseat.dev/hotseat/test/helpers/patience"
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
	clients := connlimit.New(3)
	one := openProxy(t, engine.URL, func(o *Options) { o.Clients = clients })
	other := newProxy(t, engine.URL, func(o *Options) { o.Clients = clients })
	client := newClient(t)
	held := goPost(t, client, other.url("/v1/completions"), "held")
	eventually(t, func() bool { return other.Held() == 1 })
	oldest := dialRaw(t, one.address())
	eventually(t, func() bool { return open(clients) == 2 })
	used := dialRaw(t, one.address())
	eventually(t, func() bool { return open(clients) == 3 })
	_, err := io.WriteString(used, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	_, err = io.ReadFull(used, make([]byte, 15))
	require.NoError(t, err)
	eventually(t, func() bool { return idle(clients) == 2 }) // the request is over some time after its answer began

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
	p := newProxy(t, engine.URL, func(o *Options) { o.Clients = connlimit.New(2) })
	first, second := goPost(t, newClient(t), p.url("/v1/completions"), "one"), goPost(t, newClient(t), p.url("/v1/completions"), "two")
	eventually(t, func() bool { return p.Held() == 2 })
	requireClosed(t, dialRaw(t, p.address()))
	p.Open()
	require.Equal(t, "one", receive(t, first).body)
	require.Equal(t, "two", receive(t, second).body)
}

// open returns how many connections are open.
func open(l *connlimit.Limit) int { n, _ := l.Counts(); return n }

// idle returns how many connections carry no request.
func idle(l *connlimit.Limit) int { _, n := l.Counts(); return n }
