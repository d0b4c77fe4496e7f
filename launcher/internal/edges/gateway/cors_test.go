package gateway

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

const page = "http://app.example"

// allowing answers as vLLM does, whose scripts of these origins may read it; "*": all.
func allowing(origins ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, origin := range origins {
			switch {
			case origin == "*":
				w.Header().Set("Access-Control-Allow-Origin", "*")
			case origin == r.Header.Get("Origin"):
				w.Header().Set("Access-Control-Allow-Origin", origin)
				w.Header().Set("Access-Control-Allow-Credentials", "true")
			}
		}
	}
}

// goAsk sends a request of a page.
func goAsk(t *testing.T, client *http.Client, method, url, origin string) <-chan answer {
	t.Helper()
	r := request(t.Context(), t, method, url, nil)
	r.Header.Set("Origin", origin)
	if method == http.MethodOptions {
		r.Header.Set("Access-Control-Request-Method", http.MethodPost)
	}
	got := make(chan answer, 1)
	go func() { got <- do(client, r) }()
	return got
}

func TestPreflightWaitsForTheEngineAsItsRequestDoes(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	target := listener.Addr().String()
	require.NoError(t, listener.Close()) // the engine is starting
	p := newProxy(t, target)
	client := newClient(t)
	got := goAsk(t, client, http.MethodOptions, p.url("/v1/chat/completions"), page)
	eventually(t, func() bool { return p.Held() == 1 })

	listener, err = net.Listen("tcp", target)
	require.NoError(t, err)
	engine := httptest.NewUnstartedServer(allowing("*"))
	require.NoError(t, engine.Listener.Close())
	engine.Listener = listener
	engine.Start()
	t.Cleanup(engine.Close)
	p.Open()
	first := receive(t, got)
	require.Equal(t, http.StatusOK, first.status)
	require.Equal(t, "*", first.header.Get("Access-Control-Allow-Origin"))

	p.Shut("it sleeps") // an engine that listens answers at once
	require.Equal(t, http.StatusOK, receive(t, goAsk(t, client, http.MethodOptions, p.url("/v1/chat/completions"), page)).status)
	require.Zero(t, p.Held())
}

func TestRefusalsCanBeReadByScriptsTheEngineAllows(t *testing.T) {
	for name, c := range map[string]struct {
		origins []string
		allowed map[string]string // the header of a refusal, by the origin that asks
	}{
		"every origin": {[]string{"*"}, map[string]string{page: "*", "http://other.example": "*", "": ""}},
		"one origin":   {[]string{page}, map[string]string{page: page, "http://other.example": "", "": ""}},
		"none":         {nil, map[string]string{page: "", "": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			engine := newEngine(t, allowing(c.origins...))
			p := openProxy(t, engine.URL)
			client := newClient(t)
			require.Empty(t, receive(t, goAsk(t, client, http.MethodPost, p.url("/sleep"), page)).header.Get("Access-Control-Allow-Origin"), "the engine has allowed nothing yet")
			require.Equal(t, http.StatusOK, receive(t, goAsk(t, client, http.MethodOptions, p.url("/v1/completions"), page)).status)
			p.Fail("the engine has ended")
			for origin, want := range c.allowed {
				got := receive(t, goAsk(t, client, http.MethodPost, p.url("/v1/completions"), origin))
				require.Equal(t, http.StatusServiceUnavailable, got.status)
				require.Equal(t, want, got.header.Get("Access-Control-Allow-Origin"), origin)
				require.Equal(t, want == page, got.header.Get("Access-Control-Allow-Credentials") == "true", origin)
			}
		})
	}
}

func TestSlashAtTheEndOfAPathIsTakenAway(t *testing.T) {
	engine := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, "asked for "+r.RequestURI+" with "+string(body))
	})
	p := openProxy(t, engine.URL)
	for target, want := range map[string]string{
		"/v1/models/":                 "/v1/models",
		"/v1/chat/completions/?a=b/":  "/v1/chat/completions?a=b/",
		"/health/":                    "/health",
		"/v1/models//":                "",
		"//evil.example/":             "",
		"/sleep/":                     "",
		"/v1/load_lora_adapter/":      "",
		"/v1/../collective_rpc/":      "",
		"/v1/%2e%2e/collective_rpc/":  "",
		"/":                           "",
		"http://evil.example/health/": "",
	} {
		conn := dialRaw(t, p.address())
		_, err := io.WriteString(conn, "POST "+target+" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n4\r\nbody\r\n0\r\n\r\n")
		require.NoError(t, err)
		got, err := io.ReadAll(conn)
		require.NoError(t, err)
		if want == "" {
			require.Contains(t, string(got), "HTTP/1.1 404 Not Found", target)
			continue
		}
		require.Contains(t, string(got), "HTTP/1.1 200 OK", target)
		require.Contains(t, string(got), "asked for "+want+" with body")
	}
}

// A browser follows no redirect of a preflight, and no library one of an upgrade.
func TestPreflightAndUpgradeWithATrailingSlashAreServed(t *testing.T) {
	engine := newEngine(t, allowing(page))
	p := openProxy(t, engine.URL)
	got := receive(t, goAsk(t, newClient(t), http.MethodOptions, p.url("/v1/chat/completions/"), page))
	require.Equal(t, http.StatusOK, got.status)
	require.Equal(t, page, got.header.Get("Access-Control-Allow-Origin"))

	p = openProxy(t, newEngine(t, upgrading).URL)
	_, response, _ := upgrade(t, p, "/v1/realtime/", webSocket)
	require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
}

func TestAPreflightThatNobodyWaitsForIsGivenUp(t *testing.T) {
	p := newProxy(t, "127.0.0.1:1")
	ctx, stop := context.WithCancel(t.Context())
	r := request(ctx, t, http.MethodOptions, p.url("/v1/chat/completions"), nil)
	r.Header.Set("Access-Control-Request-Method", http.MethodPost)
	got := make(chan answer, 1)
	go func() { got <- do(newClient(t), r) }()
	eventually(t, func() bool { return p.Held() == 1 })
	stop()
	require.Error(t, receive(t, got).err)
	eventually(t, func() bool { return p.Held() == 0 })
}
