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
)

// patience bounds every wait in these tests; none of them takes nearly as long.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	if port := os.Getenv(childPort); port != "" {
		beEngine(port)
		return
	}
	goleak.VerifyTestMain(m)
}

// newEngine serves a handler on loopback, in the engine's place.
func newEngine(t testing.TB, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	engine := httptest.NewServer(handler)
	t.Cleanup(engine.Close)
	return engine
}

// observer records what a proxy says of its requests.
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

// nth waits until n requests were observed and gives the n-th.
func (o *observer) nth(t *testing.T, n int) Observation {
	t.Helper()
	eventually(t, func() bool { return len(o.all()) >= n })
	return o.all()[n-1]
}

// newProxy listens in front of target; changes are applied to its options.
func newProxy(t testing.TB, target string, changes ...func(*Options)) *Proxy {
	t.Helper()
	o := Options{
		Name:        "a",
		Host:        "127.0.0.1",
		Target:      strings.TrimPrefix(target, "http://"),
		MaxHeld:     8,
		HoldTimeout: patience,
		Logger:      slog.New(slog.DiscardHandler),
	}
	for _, change := range changes {
		change(&o)
	}
	p, err := Listen(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = p.Close(ctx) // several tests close it themselves, or leave requests to be cut
	})
	return p
}

// openProxy is newProxy with the gate open.
func openProxy(t testing.TB, target string, changes ...func(*Options)) *Proxy {
	t.Helper()
	p := newProxy(t, target, changes...)
	p.Open()
	return p
}

func (p *Proxy) url(path string) string { return "http://" + p.address() + path }

func (p *Proxy) address() string { return "127.0.0.1:" + strconv.Itoa(p.Port()) }

// newClient keeps connections of its own, closed when the test ends.
func newClient(t testing.TB) *http.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	t.Cleanup(transport.CloseIdleConnections)
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

func request(ctx context.Context, t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	require.NoError(t, err)
	return r
}

func get(t testing.TB, client *http.Client, url string) answer {
	t.Helper()
	return do(client, request(t.Context(), t, http.MethodGet, url, nil))
}

func post(t testing.TB, client *http.Client, url, body string) answer {
	t.Helper()
	return do(client, request(t.Context(), t, http.MethodPost, url, strings.NewReader(body)))
}

// goPost posts in the background; its answer comes on the channel.
func goPost(t testing.TB, client *http.Client, url, body string) <-chan answer {
	t.Helper()
	r := request(t.Context(), t, http.MethodPost, url, strings.NewReader(body))
	answers := make(chan answer, 1)
	go func() { answers <- do(client, r) }()
	return answers
}

// receive waits for a value with the tests' patience.
func receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing came in time")
		panic("unreachable")
	}
}

func eventually(t testing.TB, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, patience, time.Millisecond)
}

// requireError checks an answer that the proxy made itself.
func requireError(t testing.TB, got answer, status int, message string) {
	t.Helper()
	require.NoError(t, got.err)
	require.Equal(t, status, got.status, got.body)
	require.Equal(t, "application/json", got.header.Get("Content-Type"))
	var body errorBody
	decoder := json.NewDecoder(strings.NewReader(got.body))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&body), got.body)
	require.Equal(t, status, body.Error.Code)
	require.NotEmpty(t, body.Error.Type)
	require.Contains(t, body.Error.Message, message)
}

// patientContext ends after the tests' patience.
func patientContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// overContext has ended already.
func overContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// dialRaw opens a bare connection, for requests that no HTTP client writes.
func dialRaw(t testing.TB, address string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// sendRaw writes lines as a request's header and reads until the peer closes.
func sendRaw(t testing.TB, address string, lines ...string) string {
	t.Helper()
	conn := dialRaw(t, address)
	_, err := io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	var all bytes.Buffer
	_, err = io.Copy(&all, conn)
	require.NoError(t, err)
	return all.String()
}
