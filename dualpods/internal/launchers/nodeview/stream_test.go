package nodeview

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/mtls/mtlstest"
)

// lasting starts a server whose responses begin with a line and last until the client
// leaves; then left is closed. client is a client for streams of that server.
func lasting(t *testing.T, secure bool) (client *http.Client, url string, left chan struct{}) {
	t.Helper()
	const name = "vllm.ns.launchers.hotseat.dev"
	left = make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintln(w, "begun") // the reader may be gone
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	}))
	if !secure {
		server.Start()
		t.Cleanup(server.Close)
		_, client, _ = newHTTP("", nil)
		return client, server.URL, left
	}
	ca := mtlstest.New(t, "ca")
	server.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Server(t, name)}}
	server.StartTLS()
	t.Cleanup(server.Close)
	_, client, _ = newHTTP(name, func(_ context.Context, asked string) (*tls.Config, error) {
		return &tls.Config{RootCAs: ca.Pool(), ServerName: asked}, nil
	})
	return client, server.URL, left
}

// ask opens a stream.
func ask(ctx context.Context, client *http.Client, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

func TestStreamNeedsNoGoroutineOfItsOwn(t *testing.T) {
	for what, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(what, func(t *testing.T) {
			client, url, left := lasting(t, secure)
			body, err := ask(t.Context(), client, url)
			require.NoError(t, err)
			line, err := bufio.NewReader(body).ReadString('\n')
			require.NoError(t, err)
			assert.Equal(t, "begun\n", line)
			stacks := make([]byte, 1<<20)
			assert.NotContains(t, string(stacks[:runtime.Stack(stacks, true)]), "persistConn", "goroutines of http.Transport")
			require.NoError(t, body.Close())
			<-left
		})
	}
}

func TestStreamEndsWithItsContext(t *testing.T) {
	for what, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run("while it is read, "+what, func(t *testing.T) {
			client, url, left := lasting(t, secure)
			ctx, cancel := context.WithCancel(t.Context())
			body, err := ask(ctx, client, url)
			require.NoError(t, err)
			stop := time.AfterFunc(10*time.Millisecond, cancel) // most likely while it is read
			defer stop.Stop()
			_, err = io.ReadAll(body)
			require.ErrorIs(t, err, context.Canceled)
			_ = body.Close() // the deadline of its connection is over
			<-left
		})
	}
	t.Run("before it is answered", func(t *testing.T) {
		hanging, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, no server answers
		require.NoError(t, err)
		defer hanging.Close()
		_, client, _ := newHTTP("", nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err = ask(ctx, client, "http://"+hanging.Addr().String())
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestEndlessHeadIsRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		for n := 0; err == nil; n++ { // until the client closes the connection
			_, err = fmt.Fprintf(conn, "H%d: %s\r\n", n, strings.Repeat("a", 1000))
		}
	}))
	t.Cleanup(server.Close)
	_, client, _ := newHTTP("", nil)
	_, err := ask(t.Context(), client, server.URL)
	require.ErrorContains(t, err, "cannot read the answer")
}
