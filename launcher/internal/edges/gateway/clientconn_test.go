package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/patience"
)

const (
	firstRequest = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
	nextRequest  = "POST /v1/completions/next HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nnext"
)

// watchedConn sends the error of the first read by which the server waits for the client to
// hang up. That read takes one byte.
type watchedConn struct {
	*clientConn

	waited chan<- error
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.clientConn.Read(b)
	if len(b) == 1 {
		select {
		case c.waited <- err:
		default:
		}
	}
	return n, err
}

type watchedListener struct {
	net.Listener

	waited chan<- error
}

func (l watchedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{conn.(*clientConn), l.waited}, nil
}

// client is the client of a connection to a server whose first wait for a hang-up is watched.
type client struct {
	t      *testing.T
	conn   net.Conn
	reader *bufio.Reader
	waited chan error
}

func newClientOf(t *testing.T, handler http.Handler) *client {
	t.Helper()
	waited := make(chan error, 1)
	server := httptest.NewUnstartedServer(handler)
	server.Listener = watchedListener{clientListener{server.Listener}, waited}
	server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return withConn(ctx, conn.(*watchedConn).clientConn)
	}
	server.Start()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	conn := dialRaw(t, server.Listener.Addr().String())
	return &client{t: t, conn: conn, reader: bufio.NewReader(conn), waited: waited}
}

func (c *client) send(text string) {
	_, err := io.WriteString(c.conn, text)
	assert.NoError(c.t, err)
}

// sendNext sends the next request while the first one is served. It returns how the server's
// first wait for a hang-up ended: well, if it got the first byte of that request.
func (c *client) sendNext() error {
	c.send(nextRequest)
	select {
	case err := <-c.waited:
		return err
	case <-time.After(patience.Wait()):
		return errors.New("it does not end")
	}
}

func (c *client) requireAnswer(status int, body string) {
	c.t.Helper()
	response, err := http.ReadResponse(c.reader, nil)
	require.NoError(c.t, err)
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	require.NoError(c.t, err)
	require.Equal(c.t, status, response.StatusCode)
	require.Contains(c.t, string(got), body)
	require.False(c.t, response.Close)
}

// lateEnd is a body whose end is known to the server before it is known to its reader.
type lateEnd struct {
	io.ReadCloser

	reached chan struct{} // closed when the server knows the end
	release chan struct{} // the reader learns the end when it is closed
}

func (l *lateEnd) Read(b []byte) (int, error) {
	n, err := l.ReadCloser.Read(b)
	if err != nil {
		close(l.reached)
		<-l.release
	}
	return n, err
}

func TestHeldBodyThatEndsInItsHoldSparesTheNext(t *testing.T) {
	clients := make(chan *client, 1)
	c := newClientOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/completions" {
			_, _ = fmt.Fprint(w, "the client is here: ", r.Context().Err())
			return
		}
		conn := connOf(r.Context())
		conn.beginBody()
		body := &lateEnd{r.Body, make(chan struct{}), make(chan struct{})}
		r = r.WithContext(r.Context()) // a copy: the server needs its own body unchanged
		r.Body = body
		held := readAhead(conn, r)
		bound := held.bound
		held.bound = func(at time.Time) {
			bound(at)
			assert.NoError(t, (<-clients).sendNext(), "the server still waits for a hang-up")
			close(body.release)
		}
		<-body.reached
		assert.False(t, held.stop(), "the body came whole")
		_, _ = io.WriteString(w, "first")
	}))
	clients <- c
	c.send(firstRequest)
	c.requireAnswer(http.StatusOK, "first")
	c.requireAnswer(http.StatusOK, "the client is here: <nil>")
}

func TestSlowAnswerAfterABodySparesTheNextRequest(t *testing.T) {
	clients := make(chan *client, 1)
	var once sync.Once
	p := openProxy(t, newEngine(t, echo).URL, func(o *Options) {
		o.Observe = func(Observation) { // the proxy is done, and the server still has to end the answer
			once.Do(func() {
				assert.NoError(t, (<-clients).sendNext(), "the server still waits for a hang-up")
			})
		}
	})
	p.uploadGrace = -time.Second // ended however slow the server is
	c := newClientOf(t, p)
	clients <- c
	c.send(firstRequest)
	c.requireAnswer(http.StatusOK, "body")
	c.requireAnswer(http.StatusOK, "next")
}

func TestRefusedClientStillSendingGetsANewConnection(t *testing.T) {
	for name, end := range map[string]func(*Proxy){
		"the gate fails":             func(p *Proxy) { p.Fail("the engine ran out of device memory") },
		"the engine does not listen": func(p *Proxy) { p.Open() },
	} {
		t.Run(name, func(t *testing.T) {
			sent := make(chan net.Conn, 1)
			p := newProxy(t, "127.0.0.1:1", func(o *Options) {
				o.Observe = func(Observation) { // the proxy is done, and the server has not answered yet
					_, err := io.WriteString(<-sent, "dy")
					assert.NoError(t, err)
				}
			})
			p.uploadGrace = patience.Wait() // enough however slow the server is
			conn := dialRaw(t, p.address())
			_, err := io.WriteString(conn, firstRequest[:len(firstRequest)-2])
			require.NoError(t, err)
			eventually(t, func() bool { return p.Held() == 1 })
			sent <- conn
			end(p)
			reader := bufio.NewReader(conn)
			response, err := http.ReadResponse(reader, nil)
			require.NoError(t, err)
			defer func() { _ = response.Body.Close() }()
			require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
			require.True(t, response.Close, "the server would cancel the next request of this connection")
			_, err = io.Copy(io.Discard, reader)
			require.NoError(t, err, "the connection is reset, for the server has not read the rest of the body")
		})
	}
}

func TestCutWhileAnErrorIsAnsweredSparesTheNextRequest(t *testing.T) {
	var p *Proxy
	cut := make(chan int, 2)
	p = openProxy(t, "127.0.0.1:"+portOf(reserve(t, NewPorts())), func(o *Options) {
		o.OnRefused = func() { cut <- p.gate.cutAll() }
	})
	c := newClientOf(t, p)
	for range 2 {
		c.send(firstRequest)
		c.requireAnswer(http.StatusServiceUnavailable, "the engine does not listen")
		require.Zero(t, receive(t, cut))
	}
}
