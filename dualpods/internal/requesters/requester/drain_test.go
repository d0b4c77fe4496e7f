package requester

import (
	"context"
	"fmt"
	"io"
	"net"
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

// engine answers nothing by itself: a test speaks for it.
type engine struct {
	address string
	conns   chan *net.TCPConn
}

// newEngine hands the connections that come in over to the test.
func newEngine(tb testing.TB) *engine {
	tb.Helper()
	e := &engine{conns: make(chan *net.TCPConn, 16)}
	done := make(chan struct{})
	e.address = listen(tb, func(conn *net.TCPConn) {
		e.conns <- conn
		<-done
	})
	tb.Cleanup(func() { close(done) })
	return e
}

func TestADrainLetsAnAnswerUnderWayEnd(t *testing.T) {
	s := start(t)
	e := newEngine(t)
	serving := s.bind("one", e.address)
	require.Equal(t, 200, s.post(requesterapi.PathBecomeReady, "").status)
	client := dial(t, serving)
	_, err := io.WriteString(client, "question")
	require.NoError(t, err)
	instance := receive(t, e.conns)
	require.Equal(t, "question", hear(t, instance, 8))

	unbound := s.goDelete("binding=one&drain_timeout=1h&idle_timeout=1h")
	eventually(t, func() bool { return s.state().State == requesterapi.StateDraining })
	requireRefused(t, serving)
	assert.False(t, s.state().Ready)
	p := requireProblem(t, s.post(requesterapi.PathBecomeReady, ""), 409, requesterapi.CodeDraining, "being unbound")
	assert.Equal(t, "one", p.Binding)
	requireProblem(t, s.put(s.state().ProxyConfig), 409, requesterapi.CodeDraining, "wait for DELETE")
	other := configFor(t, "two", e.address)
	requireProblem(t, s.put(other), 409, requesterapi.CodeDraining, "wait for DELETE")

	_, err = io.WriteString(instance, "answer")
	require.NoError(t, err)
	require.NoError(t, instance.CloseWrite())
	require.Equal(t, "answer", hear(t, client, 6))
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the end is the instance's own, not a cut")
	client.Close()
	got := receive(t, unbound)
	require.Equal(t, 200, got.status, got.body)
	require.Equal(t, requesterapi.Unbound{Finished: 1}, read[requesterapi.Unbound](t, got))
	require.Equal(t, requesterapi.StateUnbound, s.state().State)
}

func TestADrainCutsBothSidesOfWhatDoesNotEnd(t *testing.T) {
	s := start(t)
	e := newEngine(t)
	client := dial(t, s.bind("one", e.address))
	_, err := io.WriteString(client, "question")
	require.NoError(t, err)
	instance := receive(t, e.conns)
	require.Equal(t, "question", hear(t, instance, 8))

	got := s.delete("binding=one&drain_timeout=20ms&idle_timeout=0s")
	require.Equal(t, requesterapi.Unbound{Cut: 1}, read[requesterapi.Unbound](t, got))
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET, "half an answer must not look whole")
	_, err = instance.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.True(t, s.metric(`hotseat_requester_connections_total{outcome="cut"} 1`))
}

func TestADrainClosesConnectionsBetweenTwoRequestsAndKeepsThoseThatAwaitAnAnswer(t *testing.T) {
	s := start(t)
	e := newEngine(t)
	serving := s.bind("one", e.address)
	silent := dial(t, serving)
	silentAt := receive(t, e.conns)
	served := dial(t, serving)
	servedAt := receive(t, e.conns)
	waiting := dial(t, serving)
	waitingAt := receive(t, e.conns)
	for _, pair := range [][2]*net.TCPConn{{served, servedAt}, {waiting, waitingAt}} {
		_, err := io.WriteString(pair[0], "ask")
		require.NoError(t, err)
		require.Equal(t, "ask", hear(t, pair[1], 3))
		_, err = io.WriteString(pair[1], "told")
		require.NoError(t, err)
		require.Equal(t, "told", hear(t, pair[0], 4))
	}
	_, err := io.WriteString(waiting, "again")
	require.NoError(t, err)
	require.Equal(t, "again", hear(t, waitingAt, 5))

	unbound := s.goDelete("binding=one&drain_timeout=1h&idle_timeout=50ms")
	for _, conn := range []*net.TCPConn{silent, silentAt, served, servedAt} {
		_, err := conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "an idle one is closed, not reset")
	}
	eventually(t, func() bool { return s.state().Connections == 1 })
	_, err = io.WriteString(waitingAt, "done")
	require.NoError(t, err)
	require.Equal(t, "done", hear(t, waiting, 4), "whoever awaits an answer is kept")
	got := receive(t, unbound)
	require.Equal(t, requesterapi.Unbound{Idle: 3}, read[requesterapi.Unbound](t, got), "and is idle when it is there")
}

func TestAClientThatEndedItsBytesIsNotTakenForIdle(t *testing.T) {
	s := start(t)
	e := newEngine(t)
	client := dial(t, s.bind("one", e.address))
	_, err := io.WriteString(client, "ask")
	require.NoError(t, err)
	require.NoError(t, client.CloseWrite())
	instance := receive(t, e.conns)
	_, err = io.ReadAll(instance)
	require.NoError(t, err)
	_, err = io.WriteString(instance, "first part")
	require.NoError(t, err)
	require.Equal(t, "first part", hear(t, client, 10))

	got := s.delete("binding=one&drain_timeout=100ms&idle_timeout=0s")
	require.Equal(t, requesterapi.Unbound{Cut: 1}, read[requesterapi.Unbound](t, got))
}

func TestASecondDeleteHurriesTheFirst(t *testing.T) {
	s := start(t)
	e := newEngine(t)
	client := dial(t, s.bind("one", e.address))
	_, err := io.WriteString(client, "ask")
	require.NoError(t, err)
	require.Equal(t, "ask", hear(t, receive(t, e.conns), 3))
	first := s.goDelete("binding=one&drain_timeout=1h")
	eventually(t, func() bool { return s.state().State == requesterapi.StateDraining })
	second := s.delete("binding=one&drain_timeout=0s")
	for _, got := range []answer{second, receive(t, first)} {
		require.Equal(t, 200, got.status, got.body)
		require.Equal(t, requesterapi.Unbound{Cut: 1}, read[requesterapi.Unbound](t, got))
	}
}

func TestADrainGoesOnWhenWhoAskedForItIsGone(t *testing.T) {
	s := start(t)
	e := newEngine(t)
	client := dial(t, s.bind("one", e.address))
	_, err := io.WriteString(client, "ask")
	require.NoError(t, err)
	instance := receive(t, e.conns)
	require.Equal(t, "ask", hear(t, instance, 3))
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() {
		_, err := s.r.unbind(ctx, "one", drainFor{timeout: time.Hour, idle: time.Hour})
		asked <- err
	}()
	eventually(t, func() bool { return s.state().State == requesterapi.StateDraining })
	cancel()
	require.ErrorIs(t, receive(t, asked), context.Canceled)
	reset(instance)
	eventually(t, func() bool { return s.state().State == requesterapi.StateUnbound })
}

func TestUnbindingEndsTheWayToATargetThatDoesNotAnswer(t *testing.T) {
	s := start(t)
	// A listener whose queue is full answers no further connection.
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, syscall.Listen(fd, 0))
	name, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	full := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	dial(t, full)
	serving := s.bind("one", full)
	clients := make([]*net.TCPConn, 3)
	for i := range clients {
		clients[i] = dial(t, serving)
	}
	eventually(t, func() bool { return s.state().Connections == len(clients) })
	got := s.delete("binding=one&drain_timeout=0s")
	require.Equal(t, requesterapi.Unbound{Cut: 3}, read[requesterapi.Unbound](t, got))
	for _, c := range clients {
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	}
}

// Clients that never stop asking are handed from one instance to the next many
// times: an instance hears only those that came in through its own binding.
func TestNothingThatCameInThroughABindingReachesTheNextTarget(t *testing.T) {
	s := start(t)
	const rounds, clients = 30, 16
	var now atomic.Int64 // the binding that is there, 0: none
	var strangers atomic.Int64
	var heard atomic.Int64
	port := freePort(t)
	serving := net.JoinHostPort("127.0.0.1", itoa(port))

	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for range clients {
		asking.Go(func() {
			for ctx.Err() == nil {
				conn, err := net.Dial("tcp", serving)
				if err != nil {
					continue
				}
				_ = conn.SetDeadline(time.Now().Add(patience.Wait()))
				// A connection that is there was taken by the binding of now
				// or, while now is 0, by the next one.
				for ctx.Err() == nil {
					if _, err := conn.Write([]byte{byte(now.Load())}); err != nil {
						break
					}
					if _, err := conn.Read(make([]byte, 1)); err != nil {
						break
					}
				}
				conn.Close()
			}
		})
	}
	defer asking.Wait()
	defer stop()
	for round := 1; round <= rounds; round++ {
		target := listen(t, func(conn *net.TCPConn) {
			first := make([]byte, 1)
			for {
				if _, err := conn.Read(first); err != nil {
					return
				}
				heard.Add(1)
				if int(first[0]) != round && first[0] != 0 {
					strangers.Add(1)
				}
				if _, err := conn.Write(first); err != nil {
					return
				}
			}
		})
		id := fmt.Sprint(round)
		config := configFor(t, id, target)
		config.ServingPort = port
		before := heard.Load()
		got := s.put(config)
		require.Equal(t, 200, got.status, got.body)
		now.Store(int64(round))
		eventually(t, func() bool { return heard.Load() >= before+clients })
		now.Store(0)
		require.Equal(t, 200, s.delete("binding="+id+"&drain_timeout=5ms&idle_timeout=0s").status)
	}
	assert.Zero(t, strangers.Load())
}
