package gateway

import (
	"net/http"
	"path"
	"slices"
	"strings"
)

// Class says what a request is to the gate.
type Class string

const (
	// ClassInference is work for the model: it waits at the gate, is counted, and
	// counts as a use of the instance.
	ClassInference Class = "inference"
	// ClassStatus only reads: it passes while the engine sleeps too, and is not
	// counted.
	ClassStatus Class = "status"
	// ClassVerb is one of the sleep calls that the launcher answers in the
	// engine's place; see Verbs.
	ClassVerb Class = "verb"
	// ClassRefused never reaches the engine.
	ClassRefused Class = "refused"
)

// statusPaths are answered by vLLM's API server alone, also while the model sleeps.
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

// administrativePaths stand below /v1/ but change the engine: vLLM serves them when
// VLLM_ALLOW_RUNTIME_LORA_UPDATING is set, and they load weights from a path that
// the caller names. Which adapters an instance serves is decided when it is
// created, by --lora-modules.
var administrativePaths = map[string]bool{
	"/v1/load_lora_adapter":   true,
	"/v1/unload_lora_adapter": true,
}

// Classify decides about a request by its method, its target exactly as it
// stood in the request line (path and query, still encoded), and whether it
// asks to be upgraded to a WebSocket.
//
// The engine's framework routes on the percent-decoded path, and other layers
// clean paths in ways of their own. So nothing is decoded or cleaned here: a
// path passes only when every reading of it is the same. It is made of letters,
// digits and "-._~:/" (no percent sign, backslash or semicolon), stays as it is
// when cleaned (no dot segments, doubled or trailing slashes), and, case
// included, is listed above or stands below /v1/ without being administrative.
func Classify(method, target string, webSocket bool) Class {
	p, _, _ := strings.Cut(target, "?")
	if !passesMethod(method) || !unambiguous(p) || !passesPath(p) {
		return ClassRefused
	}
	if statusPaths[p] && !webSocket && readsOnly(method, p) {
		return ClassStatus
	}
	if method == http.MethodOptions {
		return ClassStatus
	}
	return ClassInference
}

// methods are the methods that inference APIs use; CONNECT, TRACE and unknown ones
// do not pass.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
	http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

func passesMethod(method string) bool { return slices.Contains(methods, method) }

func passesPath(p string) bool {
	if statusPaths[p] || inferencePaths[p] {
		return true
	}
	return strings.HasPrefix(p, "/v1/") && !administrativePaths[strings.ToLower(p)]
}

// readsOnly says whether a method on a status path is a read. vLLM serves
// /ping to POST as well, as SageMaker has it.
func readsOnly(method, p string) bool {
	return method == http.MethodGet || method == http.MethodHead ||
		method == http.MethodPost && p == "/ping"
}

// unambiguous says whether a raw path means the same decoded or not, cleaned
// or not.
func unambiguous(p string) bool {
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
