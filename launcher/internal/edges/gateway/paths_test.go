package gateway

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/engines/engine"
)

// engineOnlyPaths are developer and administrative calls of vLLM 0.30.0, which the
// proxy refuses.
var engineOnlyPaths = []string{
	"/sleep", "/wake_up", "/is_sleeping", "/collective_rpc", "/server_info",
	"/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache",
	"/pause", "/resume", "/is_paused", "/abort_requests",
	"/init_weight_transfer_engine", "/start_weight_update", "/update_weights", "/finish_weight_update",
	"/start_draft_weight_update", "/update_weight_version", "/weight_info", "/get_world_size",
	"/start_profile", "/stop_profile", "/tokenizer_info", "/scale_elastic_ep", "/is_scaling_elastic_ep",
	"/fault_tolerance/apply", "/fault_tolerance/status", "/adapters",
	"/v1/load_lora_adapter", "/v1/unload_lora_adapter",
	"/docs", "/redoc", "/openapi.json", "/static/x.js", "/",
}

// disguises returns ways to write a path so that some layer reads it as p.
func disguises(p string) []string {
	name := strings.TrimPrefix(p, "/")
	return []string{
		"/" + p, p + "/", "/v1/.." + p, "/v1/..%2f" + name, "/v1/%2e%2e/" + name, "/v1/.%2e/" + name,
		"/v1%2f..%2f" + name, "/v1/../" + p, "/./" + name, "/%2f" + name, "/%2e/" + name, `\` + name, `/v1/..\` + name,
		"/v1/..%5c" + name, "/v1;/.." + p, p + ";x=1", p + "%00", p + "%20", p + "%3f", p + "%23", p + "#", "/v1/x#/.." + p,
		"/%" + firstInHex(name) + name[min(1, len(name)):], "/%25" + firstInHex(name) + name[min(1, len(name)):],
		"http://x" + p, "HTTP://x" + p, "//x" + p, name, "*", "", "/v1//.." + p, "/v1/.../" + "/.." + p, "/v1/..;" + p,
	}
}

func classify(method, target string, webSocket bool) Class {
	return NewFilter((&engine.VLLM{}).Paths()).Classify(method, target, webSocket)
}

// firstInHex returns the first byte of a name in hexadecimal digits.
func firstInHex(name string) string {
	if name == "" {
		return "2f"
	}
	const digits = "0123456789abcdef"
	return string([]byte{digits[name[0]>>4], digits[name[0]&15]})
}

func TestInferencePathsPass(t *testing.T) {
	for _, p := range []string{
		"/v1/chat/completions", "/v1/completions", "/v1/completions?x=1;y=%zz", "/v1/embeddings", "/v1/responses",
		"/v1/responses/resp_0123abc/cancel", "/v1/messages", "/v1/messages/count_tokens", "/v1/audio/transcriptions",
		"/v1/chat/completions/render", "/v1/score", "/v1/rerank", "/v2/rerank", "/rerank", "/score", "/pooling", "/classify",
		"/v2/embed", "/tokenize", "/detokenize", "/invocations", "/generative_scoring", "/inference/v1/generate", "/cohere/v2/chat",
	} {
		require.Equal(t, ClassInference, classify(http.MethodPost, p, false), p)
	}
}

func TestReadOnlyPathsAreClassStatus(t *testing.T) {
	for _, p := range []string{"/health", "/ping", "/version", "/metrics", "/metrics?name[]=x", "/load", "/v1/models"} {
		require.Equal(t, ClassStatus, classify(http.MethodGet, p, false), p)
		require.Equal(t, ClassStatus, classify(http.MethodHead, p, false), p)
	}
	require.Equal(t, ClassStatus, classify(http.MethodPost, "/ping", false))
	require.Equal(t, ClassStatus, classify(http.MethodOptions, "/v1/chat/completions", false), "a browser asks first")
}

func TestOtherRequestsOnReadOnlyPathsAreInference(t *testing.T) {
	require.Equal(t, ClassInference, classify(http.MethodPost, "/v1/models", false))
	require.Equal(t, ClassInference, classify(http.MethodPost, "/health", false))
	require.Equal(t, ClassInference, classify(http.MethodGet, "/v1/responses/resp_1?stream=true", false))
	require.Equal(t, ClassInference, classify(http.MethodGet, "/v1/realtime", true))
	require.Equal(t, ClassInference, classify(http.MethodGet, "/v1/models", true))
}

func TestUnlistedPathsAreRefused(t *testing.T) {
	for _, p := range engineOnlyPaths {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
			require.Equal(t, ClassRefused, classify(method, p, false), "%s %s", method, p)
			require.Equal(t, ClassRefused, classify(method, p+"?level=1", false), "%s %s", method, p)
		}
	}
	for _, p := range []string{
		"/v1", "/v1/", "/v1x/completions", "/V1/chat/completions", "/Health", "/healthz", "/health/", "/health/x", "/v2", "/v2/completions",
		"/v1/Load_LoRA_Adapter", "/rerank/", "/Rerank", "/v3/rerank", "/x/v1/models",
	} {
		require.Equal(t, ClassRefused, classify(http.MethodPost, p, false), p)
	}
}

func TestDisguisedPathsAreRefused(t *testing.T) {
	for _, p := range append([]string{"/v1/models", "/v1/completions", "/health"}, engineOnlyPaths...) {
		for _, d := range disguises(p) {
			require.Equal(t, ClassRefused, classify(http.MethodPost, d, false), "%q disguised as %q", p, d)
			require.Equal(t, ClassRefused, classify(http.MethodGet, d, true), "%q disguised as %q", p, d)
		}
	}
}

func TestMethodsOutsideInferenceAreRefused(t *testing.T) {
	for _, method := range []string{http.MethodConnect, http.MethodTrace, "PROPFIND", "get", ""} {
		require.Equal(t, ClassRefused, classify(method, "/v1/models", false), method)
	}
}

// FuzzClassify decodes and cleans the path as generously as a server could, and
// checks that an allowed path does not change.
func FuzzClassify(f *testing.F) {
	for _, p := range append([]string{"/v1/models?x=1", "/v1/completions", "/health"}, engineOnlyPaths...) {
		f.Add(http.MethodPost, p, false)
		for _, d := range disguises(p) {
			f.Add(http.MethodGet, d, true)
		}
	}
	f.Fuzz(func(t *testing.T, method, target string, webSocket bool) {
		if classify(method, target, webSocket) == ClassRefused {
			return
		}
		raw, _, _ := strings.Cut(target, "?")
		decoded := raw
		for range 3 { // a server may decode it more than once
			once, err := url.PathUnescape(decoded)
			require.NoError(t, err)
			decoded = once
		}
		require.Equal(t, raw, decoded)
		require.Equal(t, raw, path.Clean(strings.ReplaceAll(decoded, `\`, "/")))
		require.Equal(t, raw, strings.TrimSpace(strings.SplitN(decoded, ";", 2)[0]))
		parsed, err := url.ParseRequestURI(raw)
		require.NoError(t, err)
		require.Equal(t, raw, parsed.EscapedPath())
		require.Empty(t, parsed.Host)
		for _, own := range engineOnlyPaths {
			require.NotEqual(t, strings.ToLower(own), strings.ToLower(decoded))
		}
	})
}

func TestRefusedPathsNeverReachTheEngine(t *testing.T) {
	var reached atomic.Int64
	engine := newEngine(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	p := openProxy(t, engine.URL)
	targets := append([]string{}, engineOnlyPaths...)
	for _, own := range []string{"/sleep", "/collective_rpc", "/v1/load_lora_adapter"} {
		targets = append(targets, disguises(own)...)
	}
	for _, target := range targets {
		if target == "" {
			continue // not an HTTP request
		}
		for _, method := range []string{"GET", "POST"} {
			got := sendRaw(t, p.address(), method+" "+target+" HTTP/1.1", "Host: x", "Content-Length: 0")
			status := strings.SplitN(got, "\r\n", 2)[0]
			require.Contains(t, []string{"HTTP/1.1 404 Not Found", "HTTP/1.1 400 Bad Request"}, status, "%s %s", method, target)
		}
	}
	require.Zero(t, reached.Load())
	require.Contains(t, sendRaw(t, p.address(), "GET /v1/models HTTP/1.1", "Host: x"), "HTTP/1.1 200 OK")
	require.EqualValues(t, 1, reached.Load(), "the recorder works")
}

func TestConnectAndTraceAreRefused(t *testing.T) {
	engine := newEngine(t, func(http.ResponseWriter, *http.Request) { t.Error("the engine was reached") })
	p := openProxy(t, engine.URL)
	for _, line := range []string{"CONNECT 127.0.0.1:1", "CONNECT /v1/models", "TRACE /v1/models", "SLEEP /v1/models"} {
		got := sendRaw(t, p.address(), line+" HTTP/1.1", "Host: x")
		require.Contains(t, got, "HTTP/1.1 405 Method Not Allowed", line)
		require.Contains(t, got, "Allow: GET, HEAD, POST", line)
	}
	require.Contains(t, sendRaw(t, p.address(), "OPTIONS * HTTP/1.1", "Host: x"), "404 Not Found")
}

func TestRefusalHasAnOpenAIErrorBody(t *testing.T) {
	engine := httptest.NewServer(http.NotFoundHandler())
	defer engine.Close()
	p := openProxy(t, engine.URL)
	got := post(t, newClient(t), p.url("/sleep?level=1"), "")
	requireError(t, got, http.StatusNotFound, "POST /sleep is not served here")
}
