package gateway

import (
	"net/http"
	"path"
	"slices"
	"strings"

	"hotseat.dev/hotseat/launcher/internal/engines/engine"
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

// Filter says which requests are for an engine.
type Filter struct{ status, inference, refused map[string]bool }

// NewFilter returns the filter of the paths of an engine.
func NewFilter(p engine.Paths) *Filter {
	return &Filter{status: setOf(p.Status), inference: setOf(p.Inference), refused: setOf(p.Refused)}
}

func setOf(all []string) map[string]bool {
	set := make(map[string]bool, len(all))
	for _, p := range all {
		set[p] = true
	}
	return set
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
//   - is listed, or is below /v1/ and not refused; case counts.
func (x *Filter) Classify(method, target string, webSocket bool) Class {
	p, _, _ := strings.Cut(target, "?")
	if !isAllowedMethod(method) || !isUnambiguous(p) || !x.allows(p) {
		return ClassRefused
	}
	if x.status[p] && !webSocket && isRead(method, p) {
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

func (x *Filter) allows(p string) bool {
	if x.status[p] || x.inference[p] {
		return true
	}
	return strings.HasPrefix(p, "/v1/") && !x.refused[strings.ToLower(p)]
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
