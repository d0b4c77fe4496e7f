package inference

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error is an answer that is no success. Type, Param and Code are those of OpenAI's API;
// for other APIs they follow from the status.
type Error struct {
	Status     int
	Message    string
	Type       string // empty: that of the status
	Param      string // the field of the request that is wrong; empty: none
	Code       string // what went wrong, for programs; empty: none
	RetryAfter time.Duration
}

func (e *Error) Error() string { return e.Message }

// The codes of errors that this package makes.
const (
	CodeModelMissing    = "model_missing"
	CodeModelType       = "model_not_a_string"
	CodeModelTwice      = "model_given_twice"
	CodeModelNotFound   = "model_not_found"
	CodeNotJSON         = "not_json"
	CodeNotForm         = "not_a_form"
	CodeContentType     = "unsupported_content_type"
	CodeTooLarge        = "request_too_large"
	CodeCutOff          = "request_cut_off"
	CodeNoMemory        = "no_memory_for_bodies"
	typeInvalid         = "invalid_request_error"
	typeServer          = "server_error"
	typeTooManyRequests = "rate_limit_error"
)

func invalid(code, param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Type: typeInvalid, Param: param, Code: code}
}

// ModelNotFound is the error for a request whose model does not exist. err says which there are.
func ModelNotFound(err error) *Error {
	return &Error{Status: http.StatusNotFound, Message: err.Error(), Param: "model", Code: CodeModelNotFound}
}

// NotServed is the error for a method and a path that the front door does not serve.
func NotServed(r *http.Request) *Error {
	return &Error{Status: http.StatusNotFound, Message: fmt.Sprintf("%s %s is not served here", r.Method, r.URL.EscapedPath())}
}

func errLongModel() *Error {
	return invalid(CodeModelNotFound, "model", "the name of the model is longer than %d bytes", mostCaptured)
}

func errTooLarge(limit int64) *Error {
	e := invalid(CodeTooLarge, "", "the body is larger than %d bytes", limit)
	e.Status = http.StatusRequestEntityTooLarge
	return e
}

// dialect is the API whose clients read an answer.
type dialect int

const (
	openAI dialect = iota
	anthropic
	ollama
)

func dialectOf(path string) dialect {
	switch {
	case path == "/v1/messages" || strings.HasPrefix(path, "/v1/messages/"):
		return anthropic
	case strings.HasPrefix(path, "/api/"):
		return ollama
	}
	return openAI
}

// WriteError answers with an error in the shape of the API that the path belongs to:
// Anthropic's below /v1/messages, Ollama's below /api/, and else OpenAI's.
func WriteError(w http.ResponseWriter, r *http.Request, e *Error) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Del("Content-Length")
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(e.RetryAfter.Seconds())), 10))
	}
	w.WriteHeader(e.Status)
	_, _ = w.Write(append(e.body(dialectOf(r.URL.Path), h.Get(requestIDHeader)), '\n')) // the client may be gone
}

func (e *Error) body(d dialect, requestID string) []byte {
	var body any
	switch d {
	case anthropic:
		fields := map[string]any{"type": "error", "error": map[string]string{"type": e.anthropicType(), "message": e.Message}}
		if requestID != "" {
			fields["request_id"] = requestID
		}
		body = fields
	case ollama:
		body = map[string]string{"error": e.Message}
	default:
		body = map[string]any{"error": map[string]any{
			"message": e.Message, "type": e.openAIType(), "param": orNull(e.Param), "code": orNull(e.Code),
		}}
	}
	data, _ := json.Marshal(body) // strings alone, which can always be encoded
	return data
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func (e *Error) openAIType() string {
	switch {
	case e.Type != "":
		return e.Type
	case e.Status == http.StatusTooManyRequests:
		return typeTooManyRequests
	case e.Status < http.StatusInternalServerError:
		return typeInvalid
	}
	return typeServer
}

func (e *Error) anthropicType() string {
	switch e.Status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable:
		return "overloaded_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	}
	if e.Status >= http.StatusInternalServerError {
		return "api_error"
	}
	return typeInvalid
}
