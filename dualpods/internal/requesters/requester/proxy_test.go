package requester

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/requesterapi"
)

func TestARequesterThatNobodyIsBoundToRefusesAtOnce(t *testing.T) {
	s := start(t)
	got := s.get(requesterapi.PathProxyConfig)
	require.Equal(t, http.StatusNotFound, got.status)
	unbound := read[requesterapi.Proxy](t, got)
	require.Equal(t, requesterapi.StateUnbound, unbound.State)
	require.Len(t, unbound.Instance, 16)

	config := configFor(t, "one", listen(t, echo))
	serving := net.JoinHostPort("127.0.0.1", itoa(config.ServingPort))
	requireRefused(t, serving)
	got = s.put(config)
	require.Equal(t, 200, got.status)
	assert.Equal(t, requesterapi.Proxy{ProxyConfig: config, Instance: unbound.Instance, State: requesterapi.StateBound, CanHold: true}, read[requesterapi.Proxy](t, got))
	assert.Equal(t, "hello", say(t, dial(t, serving), "hello"), "it listens when PUT answers")
	require.Equal(t, 200, s.delete("binding=one&drain_timeout=0s").status)
	requireRefused(t, serving)
}

func TestAPutThatComesAgainChangesNothing(t *testing.T) {
	s := start(t)
	config := configFor(t, "one", listen(t, echo))
	require.Equal(t, 200, s.put(config).status)
	conn := dial(t, net.JoinHostPort("127.0.0.1", itoa(config.ServingPort)))
	require.Equal(t, "a", say(t, conn, "a"))
	got := s.put(config)
	require.Equal(t, 200, got.status)
	require.Equal(t, 1, read[requesterapi.Proxy](t, got).Connections)
	require.Equal(t, "b", say(t, conn, "b"))
}

func TestAPutWithoutNamesIsThatOfTheCommunitysController(t *testing.T) {
	config, err := readConfig([]byte(`{"address": "engine.example", "port": 8005}`))
	require.NoError(t, err)
	require.Equal(t, requesterapi.ProxyConfig{Binding: "engine.example:8005", ServingPort: 8082, Address: "engine.example", Port: 8005}, config)
}

func TestAPutThatIsNotTheBoundOneIsRefused(t *testing.T) {
	s := start(t)
	one := configFor(t, "one", listen(t, echo))
	require.Equal(t, 200, s.put(one).status)
	two := one
	two.Binding = "two"
	p := requireProblem(t, s.put(two), 409, requesterapi.CodeOtherBinding, "bound to one: DELETE that first")
	assert.Equal(t, "one", p.Binding)
	for detail, change := range map[string]func(*requesterapi.ProxyConfig){
		"target 127.0.0.1:": func(c *requesterapi.ProxyConfig) { c.Port-- },
		"serving_port ":     func(c *requesterapi.ProxyConfig) { c.ServingPort++ },
		"metrics_url \"\"":  func(c *requesterapi.ProxyConfig) { c.MetricsURL = "http://10.0.0.7/metrics" },
	} {
		other := one
		change(&other)
		requireProblem(t, s.put(other), 409, requesterapi.CodeOtherBinding, detail)
	}
	p = requireProblem(t, s.delete("binding=two"), 409, requesterapi.CodeOtherBinding, "bound to one, not to two")
	assert.Equal(t, "one", p.Binding)
	require.Equal(t, requesterapi.StateBound, s.state().State)
}

func TestAServingPortThatIsTakenIsRefusedAndNothingIsBound(t *testing.T) {
	s := start(t)
	other, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer other.Close()
	config := configFor(t, "one", listen(t, echo))
	config.ServingPort = uint16(portOf(other))
	requireProblem(t, s.put(config), 409, requesterapi.CodePortTaken, "in use by another program")
	config.ServingPort = uint16(portOf(s.r.spi.listener))
	requireProblem(t, s.put(config), 400, requesterapi.CodeInvalid, "the requester's own")
	require.Equal(t, requesterapi.StateUnbound, s.state().State)
}

func TestUnbindingWhomNobodyBoundIsDoneAlready(t *testing.T) {
	s := start(t)
	for range 2 {
		got := s.delete("binding=one")
		require.Equal(t, 200, got.status)
		require.Equal(t, requesterapi.Unbound{}, read[requesterapi.Unbound](t, got))
	}
}

func TestAClientThatEndsItsBytesStillGetsTheAnswer(t *testing.T) {
	s := start(t)
	serving := s.bind("one", listen(t, func(conn *net.TCPConn) {
		all, err := io.ReadAll(conn) // to the client's end
		if err == nil {
			_, _ = conn.Write(append([]byte("heard "), all...))
		}
	}))
	conn := dial(t, serving)
	_, err := io.WriteString(conn, "a question")
	require.NoError(t, err)
	require.NoError(t, conn.CloseWrite())
	all, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, "heard a question", string(all))
	eventually(t, func() bool { return s.metric(`hotseat_requester_connections_total{outcome="finished"} 1`) })
	require.True(t, s.metric(`hotseat_requester_bytes_total{direction="up"} 10`))
	require.True(t, s.metric(`hotseat_requester_bytes_total{direction="down"} 16`))
}

func TestAnInstanceThatEndsItsBytesStillHearsTheClient(t *testing.T) {
	s := start(t)
	heard := make(chan string, 1)
	serving := s.bind("one", listen(t, func(conn *net.TCPConn) {
		_, _ = io.WriteString(conn, "bye")
		_ = conn.CloseWrite()
		all, err := io.ReadAll(conn)
		heard <- string(all) + errText(err)
	}))
	conn := dial(t, serving)
	all, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, "bye", string(all))
	_, err = io.WriteString(conn, "one more thing")
	require.NoError(t, err)
	require.NoError(t, conn.CloseWrite())
	require.Equal(t, "one more thing", receive(t, heard))
}

func TestATargetThatCannotBeReachedResetsTheClientAtOnce(t *testing.T) {
	s := start(t)
	serving := s.bind("one", net.JoinHostPort("127.0.0.1", itoa(freePort(t))))
	conn, err := net.Dial("tcp", serving)
	if err == nil { // the reset may have come before the client was told that it is connected
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
	eventually(t, func() bool { return s.metric(`hotseat_requester_connections_total{outcome="unreachable"} 1`) })
}

func TestAResetOfOneSideReachesTheOther(t *testing.T) {
	s := start(t)
	failed := make(chan error, 1)
	serving := s.bind("one", listen(t, func(conn *net.TCPConn) {
		what := make([]byte, 1)
		_, _ = io.ReadFull(conn, what)
		if what[0] == 'r' {
			reset(conn)
			return
		}
		_, _ = conn.Write(what)
		_, err := io.ReadAll(conn)
		failed <- err
	}))
	conn := dial(t, serving)
	_, err := io.WriteString(conn, "r")
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)

	conn = dial(t, serving)
	require.Equal(t, "k", say(t, conn, "k"))
	reset(conn)
	require.ErrorIs(t, receive(t, failed), syscall.ECONNRESET)
	eventually(t, func() bool { return s.metric(`hotseat_requester_connections_total{outcome="reset"} 2`) })
}

func TestAThousandConnectionsEachGetTheirOwnBytes(t *testing.T) {
	s := start(t)
	serving := s.bind("one", listen(t, echo))
	conns := make([]*net.TCPConn, 1000)
	for i := range conns {
		conns[i] = dial(t, serving)
	}
	eventually(t, func() bool { return s.state().Connections == len(conns) })
	sent := make([]byte, 32<<10)
	_, _ = rand.Read(sent)
	var all sync.WaitGroup
	wrong := make(chan error, 2*len(conns))
	for i, conn := range conns {
		mine := append([]byte(itoa(uint16(i))+" "), sent...)
		all.Go(func() {
			_, err := conn.Write(mine)
			wrong <- err
			_ = conn.CloseWrite()
		})
		all.Go(func() {
			got, err := io.ReadAll(conn)
			if err == nil && !bytes.Equal(mine, got) {
				err = io.ErrUnexpectedEOF
			}
			wrong <- err
		})
	}
	all.Wait()
	close(wrong)
	for err := range wrong {
		require.NoError(t, err)
	}
	eventually(t, func() bool { return s.state().Connections == 0 })
	require.True(t, s.metric(`hotseat_requester_connections_total{outcome="finished"} 1000`))
}

func TestMoreConnectionsThanThereAreDescriptorsForAreReset(t *testing.T) {
	s := start(t)
	s.r.maxConns = 2
	serving := s.bind("one", listen(t, echo))
	for range 2 {
		require.Equal(t, "x", say(t, dial(t, serving), "x"))
	}
	conn, err := net.Dial("tcp", serving)
	if err == nil { // the reset may have come before the client was told that it is connected
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
	eventually(t, func() bool { return s.metric(`hotseat_requester_connections_total{outcome="refused"} 1`) })
}
