package requester

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// awaitClosed waits until the other side has closed n connections.
func awaitClosed(t *testing.T, conns []net.Conn, n int) {
	t.Helper()
	closed := make(chan struct{}, len(conns))
	for _, conn := range conns {
		go func() {
			if _, err := io.Copy(io.Discard, conn); !errors.Is(err, os.ErrDeadlineExceeded) {
				closed <- struct{}{}
			}
		}()
	}
	for range n {
		receive(t, closed)
	}
}

func TestOwnPortsCloseConnectionsWithoutAWholeRequest(t *testing.T) {
	const most = 4
	for name, text := range map[string]string{
		"idle":          "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"silent":        "",
		"half a header": "GET /ready HTTP/1.1\r\nHost: loc",
		"half a body":   "PUT " + requesterapi.PathProxyConfig + " HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, func(o *Options) {
				o.connections = most
				o.headerTime, o.bodyTime, o.idleTime = time.Hour, time.Hour, time.Hour // so that the bound alone closes them
			})
			for _, address := range []string{s.r.SPIAddr().String(), s.r.ProbesAddr().String()} {
				if name == "half a body" && address == s.r.ProbesAddr().String() {
					continue // its calls have no bodies
				}
				var conns []net.Conn
				for range 3 * most {
					conn := dial(t, address)
					_, _ = io.WriteString(conn, text) // the server may have closed it
					conns = append(conns, conn)
				}
				awaitClosed(t, conns, 2*most)
			}
			require.Equal(t, http.StatusServiceUnavailable, s.call(http.MethodGet, s.probes+"/ready", "").status)
			require.Equal(t, requesterapi.StateUnbound, s.state().State)
		})
	}
}
