package gateway

import (
	"net/http"
	"path"
	"slices"
	"strings"
)

// Class says how the proxy treats a request.
type Class string

const (
	// ClassInference requests are work for the model. They wait at the gate, are
	// counted in flight, and are a use of the instance.
	ClassInference Class = "inference"
	// ClassStatus requests only read. They pass also while the engine sleeps, and are
	// not counted.
	ClassStatus Class = "status"
	// ClassVerb requests are the sleep calls, which the launcher answers instead of
	// the engine; see Verbs.
	ClassVerb Class = "verb"
	// ClassRefused requests never reach the engine.
	ClassRefused Class = "refused"
)

// statusPaths are the paths that vLLM's API server answers without the model, also
// while it sleeps.
var statusPaths = map[string]bool{
	"/health":    true,
	"/ping":      true,
	"/version":   true,
	"/metrics":   true,
	"/load":      true,
	"/v1/models": true,
}

// inferencePaths are the inference calls outside /v1/ that vLLM 0.30.0 serves
// (the api_router.py files below vllm/entrypoints).
var inferencePaths = map[string]bool{
	"/tokenize":              true,
	"/detokenize":            true,
	"/invocations":           true,
	"/pooling":               true,
	"/classify":              true,
	"/score":                 true,
	"/rerank":                true,
	"/v2/rerank":             true,
	"/v2/embed":              true,
	"/cohere/v2/chat":        true,
	"/generative_scoring":    true,
	"/inference/v1/generate": true,
}

// administrativePaths are below /v1/ but change the engine. vLLM serves them when
// VLLM_ALLOW_RUNTIME_LORA_UPDATING is set, and loads weights from a path that the
// caller names. An instance serves only the adapters of its --lora-modules.
var administrativePaths = map[string]bool{
	"/v1/load_lora_adapter":   true,
	"/v1/unload_lora_adapter": true,
}

// Classify returns the class of a request. target is the path and query exactly as
// they stand in the request line, still encoded. webSocket says whether the request
// asks for an upgrade to WebSocket.
//
// The engine's framework routes on the percent-decoded path, and other layers clean
// paths in their own ways. So Classify neither decodes nor cleans: a path passes
// only when every layer reads it in the same way. An allowed path
//   - consists of letters, digits and "-._~:/" (no percent sign, backslash or
//     semicolon);
//   - does not change when it is cleaned (it has no dot segments, doubled or
//     trailing slashes: the proxy itself takes away one slash at the end);
//   - is listed above, or is below /v1/ and not administrative; case counts.
func Classify(method, target string, webSocket bool) Class {
	p, _, _ := strings.Cut(target, "?")
	if !isAllowedMethod(method) || !isUnambiguous(p) || !isAllowedPath(p) {
		return ClassRefused
	}
	if statusPaths[p] && !webSocket && isRead(method, p) {
		return ClassStatus
	}
	if method == http.MethodOptions {
		return ClassStatus
	}
	return ClassInference
}

// methods are the methods that inference APIs use. The proxy refuses all others,
// such as CONNECT and TRACE.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
	http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

func isAllowedMethod(method string) bool { return slices.Contains(methods, method) }

func isAllowedPath(p string) bool {
	if statusPaths[p] || inferencePaths[p] {
		return true
	}
	return strings.HasPrefix(p, "/v1/") && !administrativePaths[strings.ToLower(p)]
}

// isRead reports whether a method on a status path only reads. vLLM also answers
// POST /ping, as SageMaker requires.
func isRead(method, p string) bool {
	return method == http.MethodGet || method == http.MethodHead ||
		method == http.MethodPost && p == "/ping"
}

// isUnambiguous reports whether decoding and cleaning leave a raw path as it is.
func isUnambiguous(p string) bool {
	if !strings.HasPrefix(p, "/") || path.Clean(p) != p {
		return false
	}
	for i := range len(p) {
		c := p[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		digit := c >= '0' && c <= '9'
		if !letter && !digit && !strings.ContainsRune("-._~:/", rune(c)) {
			return false
		}
	}
	return true
}
