package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestMain(m *testing.M) {
	if port := os.Getenv(childPort); port != "" {
		runTestEngine(port)
		return
	}
	goleak.VerifyTestMain(m)
}

// newEngine serves a handler on loopback, as an engine.
func newEngine(tb testing.TB, handler http.HandlerFunc) *httptest.Server {
	tb.Helper()
	engine := httptest.NewServer(handler)
	tb.Cleanup(engine.Close)
	return engine
}

// observer records the observations of a proxy.
type observer struct {
	mu   sync.Mutex
	seen []Observation
}

func (o *observer) observe(seen Observation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, seen)
}

func (o *observer) all() []Observation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]Observation(nil), o.seen...)
}

// nth waits until n requests were observed, and returns the n-th observation.
func (o *observer) nth(t *testing.T, n int) Observation {
	t.Helper()
	eventually(t, func() bool { return len(o.all()) >= n })
	return o.all()[n-1]
}

// newProxy starts a proxy in front of target. changes adjust its options.
func newProxy(tb testing.TB, target string, changes ...func(*Options)) *Proxy {
	tb.Helper()
	o := Options{
		Name:        "a",
		Host:        "127.0.0.1",
		Target:      strings.TrimPrefix(target, "http://"),
		Paths:       (&engine.VLLM{}).Paths(),
		MaxHeld:     8,
		HoldTimeout: patience.Wait(),
		Logger:      slog.New(slog.DiscardHandler),
	}
	for _, change := range changes {
		change(&o)
	}
	p, err := Listen(o)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience.Wait())
		defer cancel()
		_ = p.Close(ctx) // some tests close it themselves, or leave requests that are cut
	})
	return p
}

// openProxy starts a proxy as newProxy does, and opens its gate.
func openProxy(tb testing.TB, target string, changes ...func(*Options)) *Proxy {
	tb.Helper()
	p := newProxy(tb, target, changes...)
	p.Open()
	return p
}

func (p *Proxy) url(path string) string { return "http://" + p.address() + path }

func (p *Proxy) address() string { return "127.0.0.1:" + strconv.Itoa(p.Port()) }

// newClient makes a client with its own connections, which are closed when the test
// ends.
func newClient(tb testing.TB) *http.Client {
	tb.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	tb.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// answer is a response read to its end.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of sending, or of reading the body
}

func do(client *http.Client, r *http.Request) answer {
	response, err := client.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return answer{status: response.StatusCode, header: response.Header, body: string(body), err: err}
}

func request(ctx context.Context, tb testing.TB, method, url string, body io.Reader) *http.Request {
	tb.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	require.NoError(tb, err)
	return r
}

func get(tb testing.TB, client *http.Client, url string) answer {
	tb.Helper()
	return do(client, request(tb.Context(), tb, http.MethodGet, url, nil))
}

func post(tb testing.TB, client *http.Client, url, body string) answer {
	tb.Helper()
	return do(client, request(tb.Context(), tb, http.MethodPost, url, strings.NewReader(body)))
}

// goPost posts in the background and sends the answer on the channel.
func goPost(tb testing.TB, client *http.Client, url, body string) <-chan answer {
	tb.Helper()
	r := request(tb.Context(), tb, http.MethodPost, url, strings.NewReader(body))
	answers := make(chan answer, 1)
	go func() { answers <- do(client, r) }()
	return answers
}

// receive returns the next value of a channel, and fails the test after patience.
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

func eventually(tb testing.TB, condition func() bool) {
	tb.Helper()
	require.Eventually(tb, condition, patience.Wait(), time.Millisecond)
}

// requireError checks an answer that the proxy made itself.
func requireError(tb testing.TB, got answer, status int, message string) {
	tb.Helper()
	require.NoError(tb, got.err)
	require.Equal(tb, status, got.status, got.body)
	require.Equal(tb, "application/json", got.header.Get("Content-Type"))
	var body errorBody
	decoder := json.NewDecoder(strings.NewReader(got.body))
	decoder.DisallowUnknownFields()
	require.NoError(tb, decoder.Decode(&body), got.body)
	require.Equal(tb, status, body.Error.Code)
	require.NotEmpty(tb, body.Error.Type)
	require.Contains(tb, body.Error.Message, message)
}

// patientContext returns a context that ends after patience.
func patientContext(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience.Wait())
	tb.Cleanup(cancel)
	return ctx
}

// endedContext returns a context that has ended already.
func endedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// dialRaw opens a TCP connection, for requests that no HTTP client would send.
func dialRaw(tb testing.TB, address string) net.Conn {
	tb.Helper()
	conn, err := new(net.Dialer).DialContext(tb.Context(), "tcp", address)
	require.NoError(tb, err)
	require.NoError(tb, conn.SetDeadline(time.Now().Add(patience.Wait())))
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// sendRaw writes lines as a request's header and reads until the peer closes.
func sendRaw(tb testing.TB, address string, lines ...string) string {
	tb.Helper()
	conn := dialRaw(tb, address)
	_, err := io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\nConnection: close\r\n\r\n")
	require.NoError(tb, err)
	var all bytes.Buffer
	_, err = io.Copy(&all, conn)
	require.NoError(tb, err)
	return all.String()
}
