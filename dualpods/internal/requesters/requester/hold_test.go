package requester

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// startHolding starts a requester that holds each connection for so long.
func startHolding(t *testing.T, holdFor time.Duration) *running {
	t.Helper()
	s := start(t)
	assert.Equal(t, requesterapi.MaxHold, s.r.holdFor)
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.holdFor = holdFor
	return s
}

func (s *running) hold(hold requesterapi.Hold) answer {
	s.t.Helper()
	text, err := json.Marshal(hold)
	require.NoError(s.t, err)
	return s.call(http.MethodPut, s.spi+requesterapi.PathProxyHold, string(text))
}

// holdFor asks to hold connections for that configuration, and says where clients come.
func (s *running) holdFor(config requesterapi.ProxyConfig) (serving string) {
	s.t.Helper()
	got := s.hold(requesterapi.Hold{Binding: config.Binding, ServingPort: config.ServingPort})
	require.Equal(s.t, 200, got.status, got.body)
	require.Equal(s.t, config.Binding, read[requesterapi.Proxy](s.t, got).Holding)
	return net.JoinHostPort("127.0.0.1", itoa(config.ServingPort))
}

// heldAt opens a connection that is held, and sends a word.
func (s *running) heldAt(serving string) *net.TCPConn {
	s.t.Helper()
	before := s.state().Held
	conn := dial(s.t, serving)
	_, err := io.WriteString(conn, "word")
	require.NoError(s.t, err)
	eventually(s.t, func() bool { return s.state().Held == before+1 })
	return conn
}

func requireReset(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestUnboundPortRefuses(t *testing.T) {
	s := start(t)
	config := configFor(t, "one", listen(t, echo))
	serving := net.JoinHostPort("127.0.0.1", itoa(config.ServingPort))
	requireRefused(t, serving)
	s.holdFor(config)
	conn := s.heldAt(serving)
	require.Equal(t, 200, s.delete("binding=another").status)
	assert.Equal(t, "one", s.state().Holding, "that was another one")
	require.Equal(t, 200, s.delete("binding=one").status)
	requireReset(t, conn)
	requireRefused(t, serving)
	assert.Equal(t, requesterapi.Proxy{Instance: s.state().Instance, State: requesterapi.StateUnbound, CanHold: true}, s.state())
}

func TestHeldConnectionIsServedWhenBound(t *testing.T) {
	s := startHolding(t, patience.Wait())
	config := configFor(t, "one", listen(t, echo))
	serving := s.holdFor(config)
	conn := s.heldAt(serving)
	require.Equal(t, serving, s.holdFor(config), "a second call changes nothing")
	state := s.state()
	assert.Equal(t, []any{requesterapi.StateUnbound, "one", 1, 0, false}, []any{state.State, state.Holding, state.Held, state.Connections, state.Ready})
	assert.True(t, s.metric("hotseat_requester_connections_held 1"))
	requireProblem(t, s.post(requesterapi.PathBecomeReady, ""), 409, requesterapi.CodeUnbound, "is not bound")

	got := s.put(config)
	require.Equal(t, 200, got.status, got.body)
	assert.Equal(t, "word", hear(t, conn, len("word")))
	assert.Equal(t, "more", say(t, conn, "more"))
	assert.Equal(t, "hello", say(t, dial(t, serving), "hello"), "the next one comes to the same port")
	state = s.state()
	assert.Equal(t, []any{"", 0, requesterapi.StateBound, config}, []any{state.Holding, state.Held, state.State, state.ProxyConfig})
	require.Equal(t, 200, s.hold(requesterapi.Hold{Binding: "one", ServingPort: config.ServingPort}).status, "it is bound already")
	p := requireProblem(t, s.hold(requesterapi.Hold{Binding: "two", ServingPort: config.ServingPort}), 409, requesterapi.CodeOtherBinding, "bound to one: DELETE that first")
	assert.Equal(t, "one", p.Binding)
	require.Equal(t, 200, s.delete("binding=one&drain_timeout=0s").status)
	requireRefused(t, serving)
}

func TestHeldConnectionNeverReachesAnotherBinding(t *testing.T) {
	for name, next := range map[string]func(*running, requesterapi.ProxyConfig) answer{
		"another is bound": func(s *running, config requesterapi.ProxyConfig) answer {
			config.Binding = "two"
			return s.put(config)
		},
		"it is bound at another port": func(s *running, config requesterapi.ProxyConfig) answer {
			config.ServingPort = freePort(s.t)
			return s.put(config)
		},
		"another is held for, and then bound": func(s *running, config requesterapi.ProxyConfig) answer {
			config.Binding = "two"
			s.holdFor(config)
			return s.put(config)
		},
		"it is ended, and another is bound": func(s *running, config requesterapi.ProxyConfig) answer {
			require.Equal(s.t, 200, s.delete("binding=one").status)
			config.Binding = "two"
			return s.put(config)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startHolding(t, patience.Wait())
			came := make(chan struct{}, 2)
			config := configFor(t, "one", listen(t, func(conn *net.TCPConn) {
				came <- struct{}{}
				echo(conn)
			}))
			conn := s.heldAt(s.holdFor(config))
			got := next(s, config)
			require.Equal(t, 200, got.status, got.body)
			requireReset(t, conn)
			bound := read[requesterapi.Proxy](t, got)
			assert.Equal(t, "hello", say(t, dial(t, net.JoinHostPort("127.0.0.1", itoa(bound.ServingPort))), "hello"))
			assert.Len(t, came, 1, "the server has seen the second connection alone")
			assert.True(t, s.metric(`hotseat_requester_connections_total{outcome="unserved"} 1`))
		})
	}
}

func TestOnly64AreHeldForTenSeconds(t *testing.T) {
	assert.Equal(t, []any{64, 10 * time.Second}, []any{requesterapi.MaxHeld, requesterapi.MaxHold})
	s := startHolding(t, patience.Wait())
	config := configFor(t, "one", listen(t, echo))
	serving := s.holdFor(config)
	var held []*net.TCPConn
	for range requesterapi.MaxHeld {
		held = append(held, s.heldAt(serving))
	}
	if extra, err := net.Dial("tcp", serving); err == nil {
		t.Cleanup(func() { extra.Close() })
		requireReset(t, extra)
	} else { // the reset was faster
		require.ErrorIs(t, err, syscall.ECONNRESET)
	}
	assert.Equal(t, requesterapi.MaxHeld, s.state().Held)
	held[0].Close()
	require.Equal(t, 200, s.put(config).status)
	for _, conn := range held[1:] {
		require.Equal(t, "word", hear(t, conn, len("word")))
	}
	assert.Equal(t, "hello", say(t, dial(t, serving), "hello"), "one that is bound takes more")

	const briefly = 50 * time.Millisecond
	s = startHolding(t, briefly)
	config = configFor(t, "two", listen(t, echo))
	serving = s.holdFor(config)
	for range 2 { // it goes on holding those that come
		began := time.Now()
		requireReset(t, dial(t, serving))
		assert.GreaterOrEqual(t, time.Since(began), briefly)
	}
	require.Equal(t, 200, s.put(config).status)
	assert.Equal(t, "hello", say(t, dial(t, serving), "hello"))
}

func TestProgramThatEndsHoldsNothing(t *testing.T) {
	s := startHolding(t, patience.Wait())
	config := configFor(t, "one", listen(t, echo))
	conn := s.heldAt(s.holdFor(config))
	s.terminate()
	requireReset(t, conn)
	require.NoError(t, receive(t, s.ended))
	require.ErrorContains(t, s.r.hold(requesterapi.Hold{Binding: "one", ServingPort: config.ServingPort}), "terminating")
}

func TestHoldThatIsNoneIsRefused(t *testing.T) {
	s := start(t)
	for body, detail := range map[string]string{
		`{`:                        "is not a hold",
		`{"binding":"a"} x`:        "has more after the hold",
		`{"binding":"a","port":1}`: "is not a hold",
		`{"serving_port":8000}`:    "name the binding that connections are held for",
		`{"binding":"a b"}`:        "without spaces",
		`{"binding":"a","serving_port":` + itoa(uint16(portOf(s.r.spi.listener))) + `}`: "the requester's own",
	} {
		requireProblem(t, s.call(http.MethodPut, s.spi+requesterapi.PathProxyHold, body), 400, requesterapi.CodeInvalid, detail)
	}
	other, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer other.Close()
	requireProblem(t, s.hold(requesterapi.Hold{Binding: "a", ServingPort: uint16(portOf(other))}), 409, requesterapi.CodePortTaken, "in use by another program")
	assert.Empty(t, s.state().Holding)
}
