package main

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"debug/elf"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// What the resident memory of a requester may be, in KiB: with few connections,
// and with 1,000 that are open at once and came one after the other.
const (
	mostMemory           = 15 << 10
	mostMemoryOfThousand = 18 << 10
)

func TestTheProgramNeedsNoCLibrary(t *testing.T) {
	file, err := elf.Open(program)
	require.NoError(t, err)
	defer file.Close()
	for _, part := range file.Progs {
		assert.NotContains(t, []elf.ProgType{elf.PT_INTERP, elf.PT_DYNAMIC}, part.Type)
	}
}

func TestTheLogOfTheInstanceIsAllThatIsOnStandardOutput(t *testing.T) {
	p := newProcess(t)
	require.JSONEq(t, `["GPU-a"]`, p.must("GET", requesterapi.PathAccelerators, ""))
	status, text := p.call("GET", p.spi+requesterapi.PathAcceleratorMemoryUsage, "")
	require.Equal(t, 501, status)
	require.Contains(t, text, "CGO_ENABLED=1")
	p.must("POST", requesterapi.PathSetLog+"?startPos=0", "INFO engine starts\nINFO ")
	p.must("POST", requesterapi.PathSetLog+"?startPos=19", "INFO ready\n")
	p.signal(syscall.SIGTERM)
	require.Equal(t, 0, p.exit())
	require.Equal(t, "INFO engine starts\nINFO ready\n", p.stdout.String())
	require.Contains(t, p.stderr.String(), "GPU-a")
}

func TestAPortThatIsTakenEndsTheProgram(t *testing.T) {
	p := newProcess(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(p.spi, "http://"))
	require.NoError(t, err)
	other := launch(t, freePort(t), 0, nil, "--spi-port="+port)
	require.Equal(t, exitFailed, other.exit())
	require.Contains(t, other.stderr.String(), "cannot listen on the port of the SPI")
}

func TestARequesterThatStartsAgainIsUnboundAndSaysThatItIsAnother(t *testing.T) {
	probes, spi := freePort(t), freePort(t)
	p := startAt(t, probes, spi, nil)
	target := echo(t)
	serving := p.bind("one", target)
	p.must("POST", requesterapi.PathBecomeReady, "")
	conn := dial(t, serving)
	say(t, conn, "hello")
	before := p.state()
	p.signal(syscall.SIGKILL)
	p.exit()
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)

	p = startAt(t, probes, spi, nil)
	after := p.state()
	require.Equal(t, requesterapi.Proxy{Instance: after.Instance, State: requesterapi.StateUnbound, CanHold: true}, after)
	require.NotEqual(t, before.Instance, after.Instance)
	status, _ := p.call("GET", p.spi+requesterapi.PathReady, "")
	require.Equal(t, 503, status)
	requireRefused(t, serving)
	say(t, dial(t, p.bind("one", target)), "hello again")
	p.must("POST", requesterapi.PathBecomeReady, "")
}

func TestSIGTERMEndsABoundRequesterOnceItIsUnbound(t *testing.T) {
	p := newProcess(t, "--termination-grace=1h")
	conn := dial(t, p.bind("one", echo(t)))
	p.must("POST", requesterapi.PathBecomeReady, "")
	say(t, conn, "before")
	p.signal(syscall.SIGTERM)
	eventually(t, func() bool { return p.state().Terminating })
	status, _ := p.call("GET", p.probes+requesterapi.PathReady, "")
	require.Equal(t, 503, status)
	say(t, conn, "after")
	require.JSONEq(t, `{"finished": 0, "idle": 1, "cut": 0}`, p.must("DELETE", requesterapi.PathProxyConfig+"?binding=one&drain_timeout=1h&idle_timeout=0s", ""))
	require.Equal(t, 0, p.exit())
}

func TestSIGTERMEndsARequesterThatNobodyUnbindsWithItsGrace(t *testing.T) {
	p := newProcess(t, "--termination-grace=10ms")
	conn := dial(t, p.bind("one", echo(t)))
	say(t, conn, "hello")
	p.signal(syscall.SIGTERM)
	require.Equal(t, 0, p.exit())
	_, err := conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Contains(t, p.stderr.String(), "the termination grace has passed")
}

func TestASecondSIGTERMEndsTheRequesterAtOnce(t *testing.T) {
	p := newProcess(t, "--termination-grace=1h")
	p.bind("one", echo(t))
	p.signal(syscall.SIGTERM)
	eventually(t, func() bool { return p.state().Terminating })
	p.signal(syscall.SIGTERM)
	p.exit()
	require.Equal(t, syscall.SIGTERM, p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}

// What a process reads and writes by itself is counted in rchar and wchar; what
// it has the kernel splice is not.
func TestTheBytesOfAConnectionStayInTheKernel(t *testing.T) {
	p := newProcess(t)
	conn := dial(t, p.bind("one", echo(t)))
	const size = 64 << 20
	before := p.number("io", "rchar") + p.number("io", "wchar")
	sent, heard := sha256.New(), sha256.New()
	wrote := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.MultiWriter(conn, sent), rand.Reader, size)
		wrote <- err
		_ = conn.CloseWrite()
	}()
	n, err := io.Copy(heard, conn)
	require.NoError(t, err)
	require.NoError(t, <-wrote)
	require.EqualValues(t, size, n)
	require.Equal(t, sent.Sum(nil), heard.Sum(nil))
	copied := p.number("io", "rchar") + p.number("io", "wchar") - before
	require.Less(t, copied, size/16)
}

func TestARequesterStaysSmallOnLargeNodesToo(t *testing.T) {
	for name, env := range map[string][]string{"here": nil, "192 cores": {"GOMAXPROCS=192"}} {
		t.Run(name, func(t *testing.T) {
			p := startAt(t, freePort(t), freePort(t), env)
			idle := p.number("status", "VmRSS")
			assert.LessOrEqual(t, idle, mostMemory, "KiB, when it has answered")
			serving := p.bind("one", echo(t))
			for range 10 {
				p.serveAHundred(serving)
				assert.LessOrEqual(t, p.number("status", "VmRSS"), mostMemory, "KiB, after 100 connections more")
			}
			t.Logf("resident: %d KiB idle, %d KiB after 1,000 connections", idle, p.number("status", "VmRSS"))
		})
	}
}

// serveAHundred opens 100 connections at once, uses each and closes them.
func (p *process) serveAHundred(serving string) {
	p.t.Helper()
	conns := make([]*net.TCPConn, 100)
	for i := range conns {
		conns[i] = dial(p.t, serving)
		say(p.t, conns[i], "hello")
	}
	status, _ := p.call("GET", p.probes+"/metrics", "")
	require.Equal(p.t, 200, status)
	assert.LessOrEqual(p.t, p.number("status", "VmRSS"), mostMemory, "KiB, with 100 connections")
	for _, conn := range conns {
		conn.Close()
	}
	eventually(p.t, func() bool { return p.state().Connections == 0 })
}

func TestAThousandConnectionsAreGivenBack(t *testing.T) {
	p := newProcess(t)
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	listening := 2 // for the probes and the SPI
	eventually(t, func() bool { return p.sockets() == listening })
	serving := p.bind("one", echo(t))
	conns := make([]*net.TCPConn, 1000)
	for i := range conns {
		conns[i] = dial(t, serving)
		// A connection is served before the next one comes. Else the load of the
		// machine decides how many targets the requester dials at once: each takes a
		// larger stack, which Go keeps.
		say(t, conns[i], "hello")
	}
	resident := p.number("status", "VmRSS")
	t.Logf("resident: %d KiB with 1,000 connections", resident)
	assert.LessOrEqual(t, resident, mostMemoryOfThousand, "KiB, with 1,000 connections")
	text := p.must("DELETE", requesterapi.PathProxyConfig+"?binding=one&drain_timeout=0s", "")
	require.JSONEq(t, `{"finished": 0, "idle": 0, "cut": 1000}`, text)
	for _, conn := range conns {
		_, err := conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	}
	requireRefused(t, serving)
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	eventually(t, func() bool { return p.sockets() == listening })
}

// BenchmarkStart is the time from the start of a requester to its first answer,
// asked again as soon as it refuses.
func BenchmarkStart(b *testing.B) {
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	var times []time.Duration
	for b.Loop() {
		probes, spi := freePort(b), freePort(b)
		begun := time.Now()
		p := launch(b, probes, spi, nil)
		p.awaitAnswer()
		times = append(times, time.Since(begun))
		p.signal(os.Kill)
		p.exit()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "ms/p50")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "ms/p99")
}

func TestWaitingProgramEndsAtSIGTERM(t *testing.T) {
	cmd := exec.Command(program, waitCommand)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stderr).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, waiting+"\n", line)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
}
