package gateway

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/websocket"

	"hotseat.dev/hotseat/spec/connlimit"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// newRealtimeEngine serves WebSockets with a library's server.
func newRealtimeEngine(t *testing.T, serve func(*websocket.Conn)) string {
	t.Helper()
	engine := httptest.NewServer(websocket.Server{Handler: serve}) // it takes any origin
	t.Cleanup(engine.Close)
	return engine.URL
}

// echoMessages sends each message back.
func echoMessages(ws *websocket.Conn) {
	for {
		var message string
		if websocket.Message.Receive(ws, &message) != nil || websocket.Message.Send(ws, message) != nil {
			return
		}
	}
}

// dialWebSocket connects to the public port with a library's client.
func dialWebSocket(t *testing.T, p *Proxy) *websocket.Conn {
	t.Helper()
	config, err := websocket.NewConfig("ws://"+p.address()+"/v1/realtime?model=a", "http://"+p.address())
	require.NoError(t, err)
	ws, err := config.DialContext(patientContext(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = ws.Close() }) // most tests close it themselves
	require.NoError(t, ws.SetDeadline(time.Now().Add(patience.Wait())))
	return ws
}

func requireEcho(t *testing.T, ws *websocket.Conn, message string) {
	t.Helper()
	require.NoError(t, websocket.Message.Send(ws, message))
	var got string
	require.NoError(t, websocket.Message.Receive(ws, &got))
	require.Equal(t, message, got)
}

// requireCloseFrame reads a close frame and answers it, as a client does.
func requireCloseFrame(t *testing.T, ws *websocket.Conn, status uint16, reason string) {
	t.Helper()
	frame, err := ws.NewFrameReader()
	require.NoError(t, err)
	require.EqualValues(t, websocket.CloseFrame, frame.PayloadType())
	payload, err := io.ReadAll(frame)
	require.NoError(t, err)
	require.Greater(t, len(payload), 1)
	require.Equal(t, status, uint16(payload[0])<<8|uint16(payload[1]))
	require.Equal(t, reason, string(payload[2:]))
	require.NoError(t, ws.WriteClose(int(status)))
	require.NoError(t, ws.Close())
}

// drain drains in the background, and sends how many requests it cut on the channel.
func drain(ctx context.Context, p *Proxy) <-chan int {
	cut := make(chan int, 1)
	go func() {
		n, _ := p.Drain(ctx)
		cut <- n
	}()
	return cut
}

func TestDrainWaitsForWebSocketThatItsClientCloses(t *testing.T) {
	p := openProxy(t, newRealtimeEngine(t, echoMessages))
	ws := dialWebSocket(t, p)
	requireEcho(t, ws, "one")
	p.Shut("a swap to b")
	drained := drain(patientContext(t), p)
	requireEcho(t, ws, "two") // it still serves
	require.Equal(t, 1, p.InFlight())
	require.Empty(t, drained)
	require.NoError(t, ws.Close())
	require.Zero(t, receive(t, drained))
}

func TestCutWebSocketGetsACloseFrame(t *testing.T) {
	seen := &observer{}
	gone := make(chan struct{}, 2) // there are two WebSockets
	p := openProxy(t, newRealtimeEngine(t, func(ws *websocket.Conn) { echoMessages(ws); gone <- struct{}{} }), func(o *Options) { o.Observe = seen.observe })
	ws := dialWebSocket(t, p)
	requireEcho(t, ws, strings.Repeat("long", 20_000)) // with a length of eight bytes
	requireEcho(t, ws, strings.Repeat("short", 100))   // of two
	p.Shut("a swap to b")
	drained := drain(endedContext(), p)
	requireCloseFrame(t, ws, 1013, "the launcher cut the connection: a swap to b")
	require.Equal(t, 1, receive(t, drained))
	receive(t, gone)
	require.Equal(t, OutcomeCut, seen.nth(t, 1).Outcome)
	p.Open()
	requireEcho(t, dialWebSocket(t, p), "again")
}

// The close of a port cuts what is left at its end.
func TestClosedPortEndsWebSocketsByACloseFrame(t *testing.T) {
	p := openProxy(t, newRealtimeEngine(t, echoMessages))
	ws := dialWebSocket(t, p)
	requireEcho(t, ws, "one")
	p.Shut("the launcher is closing")
	closed := make(chan error, 1)
	go func() { closed <- p.Close(endedContext()) }()
	requireCloseFrame(t, ws, 1013, "the launcher cut the connection: the public port is being closed: the launcher is closing")
	require.ErrorContains(t, receive(t, closed), "cut 1 inference requests")
}

func TestSilentWebSocketDelaysADrainByTheGrace(t *testing.T) {
	p := openProxy(t, newRealtimeEngine(t, echoMessages))
	ws := dialWebSocket(t, p)
	requireEcho(t, ws, "one")
	p.Shut("a swap")
	require.Equal(t, 1, receive(t, drain(endedContext(), p)), "the client never closes its side")
}

func TestNoCloseFrameInTheMiddleOfAFrame(t *testing.T) {
	part := []byte{0x81, 126, 1, 0, 'p', 'a', 'r', 't'} // the beginning of a message of 256 bytes
	engine := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"+string(part))
		_, _ = io.Copy(io.Discard, rw)
	})
	p := openProxy(t, engine.URL)
	_, _, reader := upgrade(t, p, "/v1/realtime", webSocket)
	got := make([]byte, len(part))
	_, err := io.ReadFull(reader, got)
	require.NoError(t, err)
	require.Equal(t, part, got)
	p.Shut("a swap")
	require.Equal(t, 1, receive(t, drain(endedContext(), p)))
	rest, _ := io.ReadAll(reader)
	require.Empty(t, rest)
}

func TestWebSocketsCountAmongTheConnectionsOfClients(t *testing.T) {
	clients := connlimit.New(2)
	p := openProxy(t, newRealtimeEngine(t, echoMessages), func(o *Options) { o.Clients = clients })
	first, second := dialWebSocket(t, p), dialWebSocket(t, p)
	requireEcho(t, first, "one")
	requireEcho(t, second, "two")
	require.Equal(t, 2, open(clients))
	requireClosed(t, dialRaw(t, p.address()))
	requireEcho(t, first, "still open")
	require.NoError(t, second.Close())
	eventually(t, func() bool { return open(clients) == 1 })
	requireEcho(t, dialWebSocket(t, p), "in its place")
}

func TestMessagesOfAWebSocketAreSignsOfTheEngine(t *testing.T) {
	p := openProxy(t, newRealtimeEngine(t, echoMessages))
	ws := dialWebSocket(t, p)
	before := p.gate.quiet.sign.Load()
	requireEcho(t, ws, "one")
	require.Greater(t, p.gate.quiet.sign.Load(), before)
}

func TestFramesAreFollowedHoweverTheyAreSplit(t *testing.T) {
	var whole []byte
	for _, frame := range [][]byte{
		{0x81, 5, 'H', 'e', 'l', 'l', 'o'},
		append([]byte{0x02, 126, 0, 200}, make([]byte, 200)...),
		{0x80, 0},
		append([]byte{0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0}, make([]byte, 1<<16)...),
		{0x8a, 0x82, 1, 2, 3, 4, 'm', 'm'}, // masked
	} {
		whole = append(whole, frame...)
	}
	for _, size := range []int{1, 2, 3, 7, 100, len(whole)} {
		var f frames
		for rest := whole; len(rest) > 0; {
			n := min(size, len(rest))
			f.add(rest[:n])
			rest = rest[n:]
			if len(rest) > 0 && len(rest) < 8 {
				assert.False(t, f.mayEnd(), "in the middle of the last frame, in parts of %d", size)
			}
		}
		assert.True(t, f.mayEnd(), size)
		f.add([]byte{0x88, 0})
		assert.False(t, f.mayEnd(), "the engine has closed, in parts of %d", size)
	}
}

func TestCloseFrameIsNoLongerThanAControlFrame(t *testing.T) {
	frame := closeFrame(strings.Repeat("é", 100))
	require.Equal(t, []byte{0x88, byte(len(frame) - 2), 0x03, 0xf5}, frame[:4])
	require.LessOrEqual(t, len(frame), 127)
	require.Equal(t, strings.Repeat("é", 61), string(frame[4:]), "no half character")
}
