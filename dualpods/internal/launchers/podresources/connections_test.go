package podresources_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/dualpods/internal/launchers/podresources"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// Which connections are closed depends on the order in which the server ends their requests;
// package connlimit's own tests show the choice.
func TestIdleConnectionsAreBounded(t *testing.T) {
	const most = 3
	n := newNode(t, func(o *podresources.Options) {
		o.Connections, o.IdleTimeout = most, 24*time.Hour // so that the bound alone closes them
	})
	var readers sync.WaitGroup
	t.Cleanup(readers.Wait)
	closed := make(chan struct{}, 2*most)
	for range 2 * most {
		conn := n.answered()
		t.Cleanup(func() { _ = conn.Close() })
		readers.Go(func() {
			if _, err := io.Copy(io.Discard, conn); !errors.Is(err, os.ErrDeadlineExceeded) {
				closed <- struct{}{}
			}
		})
	}
	for closings := range most {
		select {
		case <-closed:
		case <-time.After(patience.Wait()):
			require.FailNow(t, "connections stay open", "%d of %d were closed", closings, most)
		}
	}
}

// answered returns the connection of a new client that the server has answered. The server
// closes a new connection while it has not ended the answered requests of all others; then the
// client tries again.
func (n *node) answered() net.Conn {
	n.t.Helper()
	for until := time.Now().Add(patience.Wait()); ; {
		conn, err := n.dial()
		if err == nil {
			err = answers(conn)
		}
		if err == nil {
			return conn
		}
		require.True(n.t, time.Now().Before(until), "no new client is answered: %v", err)
	}
}

// answers asks for nothing that the server has. It closes a connection without an answer.
func answers(conn net.Conn) error {
	err := conn.SetDeadline(time.Now().Add(patience.Wait()))
	if err == nil {
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, len("HTTP/1.1 404")))
	}
	if err != nil {
		_ = conn.Close()
	}
	return err
}
