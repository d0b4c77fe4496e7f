package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"hotseat.dev/hotseat/spec/externalscaler"
)

// kubeconfig says where a fake API server is.
func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}]}`, url), 0o600))
	return file
}

// program is a front door that runs.
type program struct {
	*frontDoor
	t    *testing.T
	end  context.CancelFunc
	over chan error
}

func start(t *testing.T, api *fakeAPI, args ...string) *program {
	t.Helper()
	s, err := parse(append([]string{
		"--namespace=team", "--own-namespace=system", "--listen=127.0.0.1:0", "--demand-listen=127.0.0.1:0", "--probes-listen=127.0.0.1:0",
		"--shutdown-delay=0", "--kubeconfig=" + kubeconfig(t, api.url),
	}, args...))
	require.NoError(t, err)
	f, err := open(s, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, end := context.WithCancel(context.Background())
	p := &program{f, t, end, make(chan error, 1)}
	go func() { p.over <- f.serve(ctx); close(p.over) }()
	t.Cleanup(func() {
		end()
		assert.NoError(t, <-p.over)
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return p
}

// get returns the status and the text of an answer.
func (p *program) get(address net.Addr, path string) (int, string) {
	p.t.Helper()
	return p.do(http.MethodGet, address, path, "")
}

func (p *program) do(method string, address net.Addr, path, body string, header ...string) (int, string) {
	r, err := http.NewRequestWithContext(context.Background(), method, "http://"+address.String()+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = got.Body.Close() }()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		return got.StatusCode, err.Error()
	}
	return got.StatusCode, string(text)
}

func (p *program) ask(header ...string) (int, string) {
	return p.do(http.MethodPost, p.clients.Addr(), "/v1/chat/completions", `{"model": "llama", "messages": []}`, header...)
}

// await waits until a path answers with a status, and a text that has some part.
func (p *program) await(address net.Addr, path string, status int, part string) {
	p.t.Helper()
	for {
		got, text := p.get(address, path)
		if got == status && strings.Contains(text, part) {
			return
		}
		select {
		case err := <-p.over:
			require.NoError(p.t, err)
			require.FailNow(p.t, "the program has ended", "%s: %d %s", path, got, text)
		case <-time.After(5 * time.Millisecond): // between two looks
		}
	}
}

func modelObject() object {
	return object{"kind": "Model", "apiVersion": "hotseat.dev/v1alpha1", "metadata": object{"namespace": "team", "name": "llama"}, "spec": object{}}
}

func podObject(name, address string) object {
	return object{
		"kind": "Pod", "apiVersion": "v1", "metadata": object{"namespace": "team", "name": name, "labels": object{"hotseat.dev/model": "llama", "hotseat.dev/model-entry": "default", "hotseat.dev/serves": "llama"}},
		"status": object{"podIP": address},
	}
}

// engine answers at the port of Models, at an address of its own.
func engine(t *testing.T, address string, h http.HandlerFunc) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(address, "8000"))
	require.NoError(t, err)
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}}
	server.Start()
	t.Cleanup(server.Close)
}

func TestFrontDoorFollowsTheCluster(t *testing.T) {
	api := newFakeAPI(t)
	p := start(t, api)
	p.await(p.probes.Addr(), "/readyz", http.StatusOK, "")
	status, text := p.ask()
	assert.Equal(t, http.StatusNotFound, status, text)

	api.set("models", modelObject())
	p.await(p.clients.Addr(), "/v1/models/llama", http.StatusOK, `"state":"idle"`)
	engine(t, "127.40.1.1", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "answered") })
	held := make(chan string)
	go func() { _, text := p.ask(); held <- text }()
	p.await(p.probes.Addr(), "/metrics", http.StatusOK, `hotseat_frontdoor_requests_held{model="llama",namespace="team"} 1`)
	pod := podObject("llama-1", "127.40.1.1")
	api.set("pods", pod)
	assert.Equal(t, "answered", <-held)

	other := podObject("llama-1", "127.40.1.1")
	delete(other["metadata"].(object)["labels"].(object), "hotseat.dev/serves")
	api.set("pods", other)
	p.await(p.clients.Addr(), "/v1/models/llama", http.StatusOK, `"state":"idle"`)

	secret := object{"kind": "Secret", "apiVersion": "v1", "metadata": object{"namespace": "system", "name": "t", "labels": object{"hotseat.dev/front-door-token": "true"}}, "data": object{"token": "c2VjcmV0"}}
	api.set("secrets", secret)
	p.await(p.clients.Addr(), "/v1/models", http.StatusUnauthorized, "a token is missing or unknown")
	status, text = p.do(http.MethodGet, p.clients.Addr(), "/v1/models", "", "Authorization", "Bearer secret")
	assert.Equal(t, http.StatusOK, status, text)
	api.remove("secrets", secret)
	p.await(p.clients.Addr(), "/v1/models", http.StatusOK, "llama")
	api.remove("models", modelObject())
	p.await(p.clients.Addr(), "/v1/models/llama", http.StatusNotFound, "")
}

func TestKEDAHearsOfARequestThatIsHeld(t *testing.T) {
	api := newFakeAPI(t)
	model := modelObject()
	model["spec"] = object{"autoscaling": object{"mode": "External"}}
	api.set("models", model)
	p := start(t, api, "--scaler-listen=127.0.0.1:0", "--scaler-plain")
	p.await(p.probes.Addr(), "/readyz", http.StatusOK, "")
	conn, err := grpc.NewClient(p.forKEDA.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()) }()
	stream, err := externalscaler.NewExternalScalerClient(conn).StreamIsActive(t.Context(), &externalscaler.ScaledObjectRef{Namespace: "team", ScalerMetadata: map[string]string{"model": "llama"}})
	require.NoError(t, err)
	held := make(chan string)
	go func() { _, text := p.ask(); held <- text }()
	for active := false; !active; { // it may say first that nobody asks
		is, err := stream.Recv()
		require.NoError(t, err)
		active = is.Result
	}
	engine(t, "127.40.1.3", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "answered") })
	api.set("pods", podObject("llama-1", "127.40.1.3"))
	assert.Equal(t, "answered", <-held)
	p.end()
	for err == nil { // it ends with the program
		_, err = stream.Recv()
	}
}

func TestTokenMayBeRequiredBeforeThereIsOne(t *testing.T) {
	p := start(t, newFakeAPI(t), "--require-tokens")
	p.await(p.probes.Addr(), "/readyz", http.StatusOK, "")
	p.await(p.clients.Addr(), "/v1/models", http.StatusUnauthorized, "")
}

func TestEndingFrontDoorFinishesWhatItHas(t *testing.T) {
	api := newFakeAPI(t)
	api.set("models", modelObject())
	p := start(t, api)
	p.await(p.probes.Addr(), "/readyz", http.StatusOK, "")
	held, more := make(chan string), make(chan struct{})
	go func() { _, text := p.ask(); held <- text }()
	p.await(p.probes.Addr(), "/metrics", http.StatusOK, `requests_held{model="llama",namespace="team"} 1`)
	p.end()
	p.await(p.probes.Addr(), "/readyz", http.StatusServiceUnavailable, "")
	engine(t, "127.40.1.2", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first, ")
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "last")
	})
	api.set("pods", podObject("llama-1", "127.40.1.2"))
	p.await(p.probes.Addr(), "/metrics", http.StatusOK, `requests_in_flight{model="llama",namespace="team"} 1`)
	close(more)
	assert.Equal(t, "first, last", <-held)
	require.NoError(t, <-p.over)
}

func TestWhatOutlastsTheGraceIsRefused(t *testing.T) {
	api := newFakeAPI(t)
	api.set("models", modelObject())
	p := start(t, api, "--grace=100ms")
	p.await(p.probes.Addr(), "/readyz", http.StatusOK, "")
	held := make(chan int)
	go func() { status, _ := p.ask(); held <- status }()
	p.await(p.probes.Addr(), "/metrics", http.StatusOK, `requests_held{model="llama",namespace="team"} 1`)
	p.end()
	assert.Equal(t, http.StatusServiceUnavailable, <-held)
	require.NoError(t, <-p.over)
}

func TestConnectionsAndHeadersAreBounded(t *testing.T) {
	api := newFakeAPI(t)
	api.set("models", modelObject())
	const most = 20
	p := start(t, api, fmt.Sprintf("--max-connections=%d", most))
	p.await(p.probes.Addr(), "/readyz", http.StatusOK, "")
	connect := func(text string) net.Conn {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.clients.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, text) // the front door may close it meanwhile
		return c
	}
	first := connect("") // idle
	slow := connect("POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	closed := make(chan error)
	for _, c := range []net.Conn{first, slow} {
		go func() { _, err := c.Read(make([]byte, 1)); closed <- err }()
	}
	for left := 2; left > 0; { // both are closed, since others come
		select {
		case err := <-closed:
			require.Error(t, err)
			left--
		case <-time.After(time.Millisecond): // between two clients
			connect("")
		}
	}
	status, _ := p.get(p.clients.Addr(), "/v1/models")
	assert.Equal(t, http.StatusOK, status)

	large := connect("GET /v1/models HTTP/1.1\r\nHost: h\r\nX-Large: " + strings.Repeat("x", 1<<20))
	line, err := bufio.NewReader(large).ReadString('\n')
	if err == nil { // the connection may be reset before the answer is read
		assert.Contains(t, line, "431")
	}
}
