package gateway

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// listenPlain listens as vLLM with one API server does: with SO_REUSEADDR, which
// package net sets.
func listenPlain(ctx context.Context, port int) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
}

// listenShared listens as vLLM with several API servers does: with SO_REUSEPORT as
// well.
func listenShared(ctx context.Context, port int) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		})
		if err != nil {
			return err
		}
		return set
	}}
	return config.Listen(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
}

func reserve(t *testing.T, ports *Ports) *Reservation {
	t.Helper()
	r, err := ports.Reserve()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func requirePortTaken(t *testing.T, err error, port int) {
	t.Helper()
	var taken *PortTakenError
	require.ErrorAs(t, err, &taken)
	require.Equal(t, port, taken.Port)
	require.Contains(t, err.Error(), strconv.Itoa(port))
}

func TestEveryConnectionToAReservedPortReachesTheEngine(t *testing.T) {
	for name, listen := range map[string]func(context.Context, int) (net.Listener, error){
		"an engine with one API server": listenPlain, "an engine with several API servers": listenShared,
	} {
		t.Run(name, func(t *testing.T) { requireConnectionsReach(t, listen) })
	}
}

func requireConnectionsReach(t *testing.T, listen func(context.Context, int) (net.Listener, error)) {
	t.Helper()
	r := reserve(t, NewPorts())
	engine, err := listen(t.Context(), r.Port())
	require.NoError(t, err)
	accepted := make(chan int)
	go func() {
		defer close(accepted)
		for n := 1; ; n++ {
			conn, err := engine.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
			accepted <- n
		}
	}()
	for n := 1; n <= 1000; n++ {
		conn, err := net.Dial("tcp", engine.Addr().String())
		require.NoError(t, err)
		require.Equal(t, n, receive(t, accepted))
		require.NoError(t, conn.Close())
	}
	require.NoError(t, engine.Close())
	_, open := <-accepted
	require.False(t, open)
}

func TestReservedPortRefusesConnectionsUntilTheEngineListens(t *testing.T) {
	r := reserve(t, NewPorts())
	_, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort(loopback, strconv.Itoa(r.Port())))
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func TestKernelNeverPicksReservedPort(t *testing.T) {
	ports, reserved := NewPorts(), map[int]bool{}
	for range 500 {
		reserved[reserve(t, ports).Port()] = true
	}
	for range 500 {
		l, err := listenPlain(t.Context(), 0)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		require.False(t, reserved[l.Addr().(*net.TCPAddr).Port])
	}
}

func TestFreePortIsReservedOnce(t *testing.T) {
	ports := NewPorts()
	seen := map[int]bool{}
	for range 200 {
		r := reserve(t, ports)
		require.False(t, seen[r.Port()])
		seen[r.Port()] = true
	}
}

func TestReservedPortCannotBePublicPort(t *testing.T) {
	ports := NewPorts()
	r, err := ports.Reserve()
	require.NoError(t, err)
	for _, host := range []string{loopback, "0.0.0.0", ""} {
		_, err := Listen(Options{Host: host, Port: r.Port(), Ports: ports})
		requirePortTaken(t, err, r.Port())
	}
	require.NoError(t, r.Close())
	p := newProxy(t, "127.0.0.1:1", func(o *Options) { o.Port = r.Port(); o.Ports = ports })
	require.Equal(t, r.Port(), p.Port())
}

func TestReservationIsNotInherited(t *testing.T) {
	r := reserve(t, NewPorts())
	flags, err := unix.FcntlInt(uintptr(r.fd), unix.F_GETFD, 0)
	require.NoError(t, err)
	require.NotZero(t, flags&unix.FD_CLOEXEC)
}

func TestReservedPortCannotBeClaimed(t *testing.T) {
	ports := NewPorts()
	r := reserve(t, ports)
	_, err := ports.Claim(r.Port())
	requirePortTaken(t, err, r.Port())
}

func TestPortOfSurvivingEngineIsClaimed(t *testing.T) {
	engine, err := listenShared(t.Context(), 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, engine.Close()) }()
	port := engine.Addr().(*net.TCPAddr).Port
	ports := NewPorts()
	r, err := ports.Claim(port)
	require.NoError(t, err)
	require.Equal(t, port, r.Port())
	require.NoError(t, r.Close())
	require.NoError(t, r.Close(), "a second close does nothing")
	r, err = ports.Claim(port)
	require.NoError(t, err, "a port given back can be claimed again")
	require.NoError(t, r.Close())
}

func TestUnsharedPortOfSurvivingEngineIsClaimed(t *testing.T) {
	engine, err := listenPlain(t.Context(), 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, engine.Close()) }()
	ports := NewPorts()
	r, err := ports.Claim(engine.Addr().(*net.TCPAddr).Port)
	require.NoError(t, err)
	_, err = ports.Claim(r.Port())
	requirePortTaken(t, err, r.Port())
	require.NoError(t, r.Close())
	for _, nonsense := range []int{-1, 0, 65536} {
		_, err := NewPorts().Claim(nonsense)
		require.ErrorContains(t, err, "out of range")
	}
}

func TestReservationsLeakNoDescriptors(t *testing.T) {
	stranger := newEngine(t, nil).Listener.Addr().(*net.TCPAddr)
	ports := NewPorts()
	before := descriptors(t)
	for range 100 {
		r, err := ports.Reserve()
		require.NoError(t, err)
		require.NoError(t, r.Close())
		r, err = ports.Claim(stranger.Port)
		require.NoError(t, err)
		require.NoError(t, r.Close())
	}
	require.Equal(t, before, descriptors(t))
}

// descriptors counts this process's open files.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

// childPort is the name of a variable. If it is set, the test binary runs as an engine
// on that port.
const childPort = "GATEWAY_TEST_ENGINE_PORT"

// runTestEngine is an engine in its own process. It begins an answer for
// /v1/completions only, and ends none.
func runTestEngine(port string) {
	number, err := strconv.Atoi(port)
	if err != nil {
		panic(err)
	}
	listener, err := listenShared(context.Background(), number)
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(os.Stdout, "ready\n")
	panic(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // a test's engine
		if r.URL.Path == "/v1/completions" {
			_, _ = io.WriteString(w, "data: one\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	})))
}

// startEngine runs runTestEngine in a child process, which kill ends at once.
func startEngine(t *testing.T, port int) (kill func()) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childPort+"="+strconv.Itoa(port))
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line := make([]byte, len("ready\n"))
	_, err = io.ReadFull(out, line)
	require.NoError(t, err)
	return func() {
		require.NoError(t, child.Process.Kill())
		_ = child.Wait() // killed, as asked
	}
}

func TestKilledEngineBreaksOffItsRequests(t *testing.T) {
	r := reserve(t, NewPorts())
	kill := startEngine(t, r.Port())
	seen := &observer{}
	p := openProxy(t, net.JoinHostPort(loopback, strconv.Itoa(r.Port())), func(o *Options) { o.Observe = seen.observe })
	client := newClient(t)

	silent := goPost(t, client, p.url("/v1/chat/completions"), "{}")
	started := request(t.Context(), t, http.MethodPost, p.url("/v1/completions"), strings.NewReader("{}"))
	response, err := client.Do(started)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	eventually(t, func() bool { return p.InFlight() == 2 })
	line := make([]byte, len("data: one\n\n"))
	_, err = io.ReadFull(response.Body, line)
	require.NoError(t, err)

	kill()
	requireError(t, receive(t, silent), http.StatusBadGateway, "failed to answer")
	_, err = io.ReadAll(response.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "a cut answer must not look complete")
	seen.nth(t, 2)
	for _, o := range seen.all() {
		require.Equal(t, OutcomeEngineFailed, o.Outcome)
	}
	got := post(t, client, p.url("/v1/completions"), "{}")
	requireError(t, got, http.StatusServiceUnavailable, "does not listen")
	eventually(t, func() bool { return p.InFlight() == 0 })
}
