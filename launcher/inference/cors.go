package inference

import (
	"io"
	"net/http"
	"slices"
	"strings"
)

// The headers by which a server lets scripts of web pages call it
// (https://fetch.spec.whatwg.org/#http-cors-protocol).
const (
	askMethod      = "Access-Control-Request-Method"
	askHeaders     = "Access-Control-Request-Headers"
	askPrivate     = "Access-Control-Request-Private-Network"
	allowOrigin    = "Access-Control-Allow-Origin"
	allowMethods   = "Access-Control-Allow-Methods"
	allowHeaders   = "Access-Control-Allow-Headers"
	preflightLasts = "Access-Control-Max-Age"
)

// IsPreflight reports whether a browser asks whether a script may send a request.
func IsPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get(askMethod) != ""
}

// AnswerPreflight lets scripts of every origin send requests with these methods and any headers, as
// vLLM does by default. Like vLLM it lets no page of a public network call a private one.
func AnswerPreflight(w http.ResponseWriter, r *http.Request, methods ...string) {
	h := w.Header()
	h.Set("Vary", strings.Join([]string{"Origin", askMethod, askHeaders, askPrivate}, ", "))
	h.Set(allowOrigin, "*")
	h.Set(allowMethods, strings.Join(methods, ", "))
	if asked := r.Header.Get(askHeaders); asked != "" {
		h.Set(allowHeaders, asked)
	}
	h.Set(preflightLasts, "600")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	status, text := http.StatusOK, "OK"
	switch {
	case !slices.Contains(methods, r.Header.Get(askMethod)):
		status, text = http.StatusBadRequest, "Disallowed CORS method"
	case r.Header.Get(askPrivate) != "":
		status, text = http.StatusBadRequest, "Disallowed CORS private-network"
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // the client may be gone
}

// AllowReading lets scripts of every origin read the answer to a request.
func AllowReading(h http.Header, r *http.Request) {
	h.Set("Vary", "Origin")
	if r.Header.Get("Origin") != "" {
		h.Set(allowOrigin, "*")
	}
}

// ForgetReading takes back what AllowReading did, for an answer that says itself who may read it.
func ForgetReading(h http.Header) {
	h.Del("Vary")
	h.Del(allowOrigin)
}
