package requester

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a requester of a test, with all its ports on loopback.
type running struct {
	t           testing.TB
	r           *Requester
	spi, probes string
	log         *buffer
	terminate   context.CancelFunc
	ended       chan error
	client      *http.Client
}

// buffer is what a test can read while others write.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// environment answers for os.Getenv.
func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func start(tb testing.TB, changes ...func(*Options)) *running {
	tb.Helper()
	s := &running{t: tb, log: &buffer{}, ended: make(chan error, 1)}
	options := Options{
		Host:             "127.0.0.1",
		AcceleratorsFrom: "env",
		TerminationGrace: patience.Wait(),
		Log:              s.log,
		Logger:           slog.New(slog.DiscardHandler),
		Version:          "test",
		Getenv:           environment(envVisible, "GPU-b,GPU-a"),
	}
	for _, change := range changes {
		change(&options)
	}
	var err error
	s.r, err = New(options)
	require.NoError(tb, err)
	s.spi, s.probes = "http://"+s.r.SPIAddr().String(), "http://"+s.r.ProbesAddr().String()
	transport := &http.Transport{}
	s.client = &http.Client{Transport: transport, Timeout: patience.Wait()}
	ctx, cancel := context.WithCancel(context.Background())
	s.terminate = cancel
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.ended <- s.r.Run(ctx)
	}()
	tb.Cleanup(func() {
		cancel()
		transport.CloseIdleConnections()
		if bound := s.r.terminate(); bound != nil {
			_, _ = s.r.unbind(context.Background(), bound.config.Binding, drainFor{}) // else Run waits for its grace
		}
		<-over // the ports are closed after Run, which opens them
		require.NoError(tb, s.r.Close())
	})
	return s
}

// answer is a response read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

func (s *running) call(method, url, body string) answer {
	s.t.Helper()
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	require.NoError(s.t, err)
	response, err := s.client.Do(request)
	require.NoError(s.t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return answer{response.StatusCode, response.Header, string(content)}
}

func (s *running) get(path string) answer {
	s.t.Helper()
	return s.call(http.MethodGet, s.spi+path, "")
}

func (s *running) post(path, body string) answer {
	s.t.Helper()
	return s.call(http.MethodPost, s.spi+path, body)
}

func (s *running) put(config requesterapi.ProxyConfig) answer {
	s.t.Helper()
	text, err := json.Marshal(config)
	require.NoError(s.t, err)
	return s.call(http.MethodPut, s.spi+requesterapi.PathProxyConfig, string(text))
}

func (s *running) delete(query string) answer {
	s.t.Helper()
	return s.call(http.MethodDelete, s.spi+requesterapi.PathProxyConfig+"?"+query, "")
}

// bind binds to a target and says where the requester serves it.
func (s *running) bind(binding, target string) (serving string) {
	s.t.Helper()
	config := configFor(s.t, binding, target)
	got := s.put(config)
	require.Equal(s.t, http.StatusOK, got.status, got.body)
	return fmt.Sprintf("127.0.0.1:%d", config.ServingPort)
}

func configFor(tb testing.TB, binding, target string) requesterapi.ProxyConfig {
	tb.Helper()
	host, port, err := net.SplitHostPort(target)
	require.NoError(tb, err)
	number, err := net.LookupPort("tcp", port)
	require.NoError(tb, err)
	return requesterapi.ProxyConfig{Binding: binding, ServingPort: freePort(tb), Address: host, Port: uint16(number)}
}

func freePort(tb testing.TB) uint16 {
	tb.Helper()
	port, err := harness.FreePort()
	require.NoError(tb, err)
	return port
}

func read[T any](tb testing.TB, a answer) T {
	tb.Helper()
	var v T
	decoder := json.NewDecoder(strings.NewReader(a.body))
	decoder.DisallowUnknownFields()
	require.NoError(tb, decoder.Decode(&v), a.body)
	return v
}

func requireProblem(tb testing.TB, a answer, status int, code, detail string) requesterapi.Problem {
	tb.Helper()
	require.Equal(tb, status, a.status, a.body)
	require.Equal(tb, requesterapi.ProblemContentType, a.header.Get("Content-Type"))
	p := read[requesterapi.Problem](tb, a)
	require.Equal(tb, code, p.Code)
	require.Equal(tb, status, p.Status)
	require.NotEmpty(tb, p.Title)
	require.Contains(tb, p.Detail, detail)
	return p
}

// listen is an inference server of a test: each connection goes to handle, and
// is closed when it returns.
func listen(tb testing.TB, handle func(*net.TCPConn)) (address string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(patience.Wait()))
				handle(conn.(*net.TCPConn))
			})
		}
	})
	tb.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

func echo(conn *net.TCPConn) {
	_, _ = io.Copy(conn, conn)
	_ = conn.CloseWrite()
}

func dial(tb testing.TB, address string) *net.TCPConn {
	tb.Helper()
	conn, err := net.Dial("tcp", address)
	require.NoError(tb, err)
	require.NoError(tb, conn.SetDeadline(time.Now().Add(patience.Wait())))
	tb.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

// say sends a line and reads what comes back for it.
func say(tb testing.TB, conn net.Conn, line string) string {
	tb.Helper()
	_, err := io.WriteString(conn, line)
	require.NoError(tb, err)
	return hear(tb, conn, len(line))
}

func hear(tb testing.TB, conn net.Conn, n int) string {
	tb.Helper()
	heard := make([]byte, n)
	_, err := io.ReadFull(conn, heard)
	require.NoError(tb, err)
	return string(heard)
}

func requireRefused(tb testing.TB, address string) {
	tb.Helper()
	conn, err := net.Dial("tcp", address)
	if err == nil {
		conn.Close()
	}
	require.ErrorIs(tb, err, syscall.ECONNREFUSED)
}

// receive waits for a value with the tests' patience.
func receive[T any](tb testing.TB, from <-chan T) T {
	tb.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience.Wait()):
		require.FailNow(tb, "nothing came in time")
		panic("unreachable")
	}
}

func itoa(n uint16) string { return strconv.Itoa(int(n)) }

func eventually(tb testing.TB, condition func() bool) {
	tb.Helper()
	require.Eventually(tb, condition, patience.Wait(), time.Millisecond)
}

// goDelete is delete in the background.
func (s *running) goDelete(query string) <-chan answer {
	s.t.Helper()
	request, err := http.NewRequest(http.MethodDelete, s.spi+requesterapi.PathProxyConfig+"?"+query, nil)
	require.NoError(s.t, err)
	answers := make(chan answer, 1)
	go func() {
		response, err := s.client.Do(request)
		if err != nil {
			answers <- answer{body: err.Error()}
			return
		}
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		answers <- answer{response.StatusCode, response.Header, fmt.Sprint(string(content), errText(err))}
	}()
	return answers
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (s *running) state() requesterapi.Proxy {
	s.t.Helper()
	return read[requesterapi.Proxy](s.t, s.get(requesterapi.PathProxyConfig))
}

func (s *running) metric(line string) bool {
	s.t.Helper()
	return strings.Contains(s.call(http.MethodGet, s.probes+"/metrics", "").body, line+"\n")
}
