package gateway

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// upgrading is an engine that switches to any protocol, and then echoes.
func upgrading(w http.ResponseWriter, r *http.Request) {
	protocol := r.Header.Get("Upgrade")
	if protocol == "" {
		_, _ = io.WriteString(w, "no upgrade: "+r.Header.Get("Connection"))
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n\r\n")
	_, _ = io.Copy(conn, rw)
}

// upgrade asks for an upgrade, and returns the connection, the answer and a reader of
// the connection.
func upgrade(t *testing.T, p *Proxy, path, header string) (net.Conn, *http.Response, *bufio.Reader) {
	t.Helper()
	conn := dialRaw(t, p.address())
	_, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n"+header+"\r\n\r\n")
	require.NoError(t, err)
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	return conn, response, reader
}

const webSocket = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket"

func TestWebSocketIsForwardedAndCountedInFlight(t *testing.T) {
	engine := newEngine(t, upgrading)
	seen := &observer{}
	p := openProxy(t, engine.URL, func(o *Options) { o.Observe = seen.observe })
	conn, response, reader := upgrade(t, p, "/v1/realtime?model=a", webSocket)
	require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
	for _, message := range []string{"one", "two", "three"} {
		_, err := io.WriteString(conn, message)
		require.NoError(t, err)
		requireNext(t, reader, message)
	}
	require.Equal(t, 1, p.InFlight())
	require.NoError(t, conn.Close())
	eventually(t, func() bool { return p.InFlight() == 0 })
	o := seen.nth(t, 1)
	require.Equal(t, Observation{Class: ClassInference, Status: 101, Outcome: OutcomeAnswered, Duration: o.Duration}, o)
}

func TestWebSocketWaitsAtShutGate(t *testing.T) {
	engine := newEngine(t, upgrading)
	p := newProxy(t, engine.URL)
	upgraded := make(chan int, 1)
	go func() {
		_, response, _ := upgrade(t, p, "/v1/realtime", webSocket)
		upgraded <- response.StatusCode
	}()
	eventually(t, func() bool { return p.Held() == 1 })
	p.Open()
	require.Equal(t, http.StatusSwitchingProtocols, receive(t, upgraded))
}

func TestDrainCutsSilentWebSocket(t *testing.T) {
	engine := newEngine(t, upgrading)
	seen := &observer{}
	p := openProxy(t, engine.URL, func(o *Options) { o.Observe = seen.observe })
	_, _, reader := upgrade(t, p, "/v1/realtime", webSocket)
	p.Shut("a swap")
	cut, err := p.Drain(endedContext())
	require.NoError(t, err)
	require.Equal(t, 1, cut)
	_, err = io.Copy(io.Discard, reader) // the close frame
	require.NoError(t, err)
	require.Equal(t, OutcomeCut, seen.nth(t, 1).Outcome)
}

func TestWebSocketEndsWithItsEngine(t *testing.T) {
	leave := make(chan struct{})
	engine := newEngine(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		<-leave
		_ = conn.Close()
	})
	p := openProxy(t, engine.URL)
	conn, _, reader := upgrade(t, p, "/v1/realtime", webSocket)
	close(leave)
	_, err := reader.ReadByte()
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, conn.Close())
	eventually(t, func() bool { return p.InFlight() == 0 })
}

func TestOtherUpgradesAreNotForwarded(t *testing.T) {
	var switched atomic.Int64
	engine := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			switched.Add(1)
		}
		upgrading(w, r)
	})
	p := openProxy(t, engine.URL)
	for name, header := range map[string]string{
		"HTTP/2, whose further requests nobody would check": "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
		"a choice of two":              "Connection: Upgrade\r\nUpgrade: websocket, h2c",
		"two headers":                  "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c",
		"another one":                  "Connection: Upgrade\r\nUpgrade: TLS/1.2",
		"without the Connection token": "Connection: keep-alive\r\nUpgrade: websocket",
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/v1/models", "/health", "/v1/realtime"} {
				_, response, _ := upgrade(t, p, path, header)
				body, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, response.StatusCode)
				require.Equal(t, "no upgrade: ", string(body))
			}
		})
	}
	require.Zero(t, switched.Load())
	got := sendRaw(t, p.address(), "PRI * HTTP/2.0", "Host: x")
	require.True(t, strings.HasPrefix(got, "HTTP/1.1 505") || strings.HasPrefix(got, "HTTP/1.1 400") || strings.HasPrefix(got, "HTTP/1.1 405"), got)
}

func TestUnrequestedUpgradeGives502(t *testing.T) {
	engine := newEngine(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
		_ = conn.Close()
	})
	p := openProxy(t, engine.URL)
	requireError(t, get(t, newClient(t), p.url("/v1/models")), http.StatusBadGateway, "failed to answer")
}
