package main

import (
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// ask makes a connection, says a word and hears it.
func ask(address string) error {
	conn, err := net.DialTimeout("tcp", address, patience.Wait())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience.Wait())); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "word"); err != nil {
		return err
	}
	heard := make([]byte, len("word"))
	_, err = io.ReadFull(conn, heard)
	return err
}

func TestToldToEndItServesUntilItsShutdownDelayIsOver(t *testing.T) {
	p := newProcess(t, "--shutdown-delay=500ms")
	serving := p.bind("one", echo(t))
	p.must(http.MethodPost, requesterapi.PathBecomeReady, "")
	var unbound, over atomic.Bool // DELETE is sent; its answer is there
	var lost atomic.Value
	var asked atomic.Int64 // after the signal
	var signalled atomic.Bool
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for !over.Load() {
				after := signalled.Load()
				err := ask(serving)
				switch {
				case unbound.Load():
				case err != nil:
					lost.Store(err.Error())
				case after:
					asked.Add(1)
				}
			}
		})
	}
	stop := func() { over.Store(true); asking.Wait() }
	defer stop()
	p.signal(syscall.SIGTERM)
	signalled.Store(true)
	eventually(t, func() bool { return p.state().Terminating })
	status, _ := p.call(http.MethodGet, p.probes+requesterapi.PathReady, "")
	assert.Equal(t, 503, status, "it is unready at once")
	eventually(t, func() bool { return p.state().ShutdownDelayMS == 0 })
	before := asked.Load()
	eventually(t, func() bool { return asked.Load() > before })
	unbound.Store(true)
	p.must(http.MethodDelete, requesterapi.PathProxyConfig+"?binding=one&drain_timeout=1h&idle_timeout=10ms", "")
	stop()
	assert.Nil(t, lost.Load(), "no request is lost")
	require.Equal(t, 0, p.exit())
}
