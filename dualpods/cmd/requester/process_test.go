package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// program is the requester as make build builds it.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "requester-")
	if err == nil {
		program = filepath.Join(dir, "requester")
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.version=built", "-o", program, ".")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot build the requester:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// process is a requester that runs.
type process struct {
	t           testing.TB
	cmd         *exec.Cmd
	stdout      bytes.Buffer // to be read when it has ended
	stderr      bytes.Buffer
	spi, probes string
	ended       chan struct{} // closed when it has
}

func freePort(tb testing.TB) int {
	tb.Helper()
	port, err := harness.FreePort()
	require.NoError(tb, err)
	return int(port)
}

// newProcess starts a requester at free ports and waits until it answers.
func newProcess(tb testing.TB, flags ...string) *process {
	tb.Helper()
	return startAt(tb, freePort(tb), freePort(tb), nil, flags...)
}

func startAt(tb testing.TB, probes, spi int, env []string, flags ...string) *process {
	tb.Helper()
	p := launch(tb, probes, spi, env, flags...)
	p.awaitAnswer()
	return p
}

func launch(tb testing.TB, probes, spi int, env []string, flags ...string) *process {
	tb.Helper()
	p := &process{t: tb, spi: fmt.Sprintf("http://127.0.0.1:%d", spi), probes: fmt.Sprintf("http://127.0.0.1:%d", probes), ended: make(chan struct{})}
	p.cmd = exec.Command(program, append([]string{"--host=127.0.0.1", fmt.Sprint("--probes-port=", probes), fmt.Sprint("--spi-port=", spi)}, flags...)...)
	p.cmd.Env = append([]string{"NVIDIA_VISIBLE_DEVICES=GPU-a"}, env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	require.NoError(tb, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // how it ended stands in ProcessState
		close(p.ended)
	}()
	tb.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		if tb.Failed() {
			tb.Log(p.stderr.String())
		}
	})
	return p
}

func (p *process) awaitAnswer() {
	p.t.Helper()
	deadline := time.Now().Add(patience.Wait())
	for {
		response, err := http.Get(p.spi + requesterapi.PathAccelerators)
		if err == nil {
			response.Body.Close()
			return
		}
		require.True(p.t, time.Now().Before(deadline), "the requester does not answer: %v", err)
		select {
		case <-p.ended:
			require.FailNow(p.t, "the requester ended", p.stderr.String())
		default:
		}
	}
}

func (p *process) call(method, url, body string) (status int, text string) {
	p.t.Helper()
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	require.NoError(p.t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(p.t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	return response.StatusCode, string(content)
}

func (p *process) must(method, path, body string) string {
	p.t.Helper()
	status, text := p.call(method, p.spi+path, body)
	require.Equal(p.t, 200, status, text)
	return text
}

// bind binds to a target and says where the requester serves it.
func (p *process) bind(binding, target string) (serving string) {
	p.t.Helper()
	address, port, err := net.SplitHostPort(target)
	require.NoError(p.t, err)
	number, err := strconv.Atoi(port)
	require.NoError(p.t, err)
	config := requesterapi.ProxyConfig{Binding: binding, ServingPort: uint16(freePort(p.t)), Address: address, Port: uint16(number)}
	text, err := json.Marshal(config)
	require.NoError(p.t, err)
	p.must(http.MethodPut, requesterapi.PathProxyConfig, string(text))
	return fmt.Sprintf("127.0.0.1:%d", config.ServingPort)
}

func (p *process) state() (proxy requesterapi.Proxy) {
	p.t.Helper()
	_, text := p.call(http.MethodGet, p.spi+requesterapi.PathProxyConfig, "")
	require.NoError(p.t, json.Unmarshal([]byte(text), &proxy), text)
	return proxy
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

func (p *process) exit() (code int) {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience.Wait()):
		require.FailNow(p.t, "the requester does not end")
		return 0
	}
}

// number reads a line such as "VmRSS:  8000 kB" from a file of the process.
func (p *process) number(file, name string) int {
	p.t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, file))
	require.NoError(p.t, err)
	found := regexp.MustCompile(`(?m)^` + name + `:\s+(\d+)`).FindSubmatch(content)
	require.NotNil(p.t, found, "%s has no %s", file, name)
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(p.t, err)
	return n
}

// sockets counts those that the process has open.
func (p *process) sockets() (n int) {
	p.t.Helper()
	folder := fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)
	entries, err := os.ReadDir(folder)
	require.NoError(p.t, err)
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(folder, e.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

func eventually(tb testing.TB, condition func() bool) {
	tb.Helper()
	require.Eventually(tb, condition, patience.Wait(), time.Millisecond)
}

func dial(tb testing.TB, address string) *net.TCPConn {
	tb.Helper()
	conn, err := net.Dial("tcp", address)
	require.NoError(tb, err)
	require.NoError(tb, conn.SetDeadline(time.Now().Add(patience.Wait())))
	tb.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

func say(tb testing.TB, conn net.Conn, word string) {
	tb.Helper()
	_, err := fmt.Fprintln(conn, word)
	require.NoError(tb, err)
	heard, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(tb, err)
	require.Equal(tb, word+"\n", heard)
}

// echo is an inference server that says what it hears.
func echo(tb testing.TB) (address string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var all []chan struct{}
		for {
			conn, err := l.Accept()
			if err != nil {
				break
			}
			done := make(chan struct{})
			all = append(all, done)
			go func() {
				defer close(done)
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(patience.Wait()))
				_, _ = io.Copy(conn, conn)
			}()
		}
		for _, done := range all {
			<-done
		}
	}()
	tb.Cleanup(func() {
		l.Close()
		<-ended
	})
	return l.Addr().String()
}

func requireRefused(tb testing.TB, address string) {
	tb.Helper()
	conn, err := net.Dial("tcp", address)
	if err == nil {
		conn.Close()
	}
	require.ErrorIs(tb, err, syscall.ECONNREFUSED)
}
