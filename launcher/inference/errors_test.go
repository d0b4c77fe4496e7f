package inference

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestErrorsHaveTheShapeOfTheirAPI(t *testing.T) {
	full := &Error{Status: 404, Message: `no "x"`, Param: "model", Code: CodeModelNotFound}
	for name, tt := range map[string]struct {
		path string
		err  *Error
		want string
	}{
		"OpenAI":               {"/v1/chat/completions", full, `{"error":{"code":"model_not_found","message":"no \"x\"","param":"model","type":"invalid_request_error"}}`},
		"OpenAI, server":       {"/v1/messagesx", &Error{Status: 502, Message: "m"}, `{"error":{"code":null,"message":"m","param":null,"type":"server_error"}}`},
		"OpenAI, too many":     {"/", &Error{Status: 429, Message: "m"}, `{"error":{"code":null,"message":"m","param":null,"type":"rate_limit_error"}}`},
		"OpenAI, own type":     {"/", &Error{Status: 500, Message: "m", Type: "own"}, `{"error":{"code":null,"message":"m","param":null,"type":"own"}}`},
		"Anthropic":            {"/v1/messages", full, `{"error":{"message":"no \"x\"","type":"not_found_error"},"request_id":"id-1","type":"error"}`},
		"Anthropic, invalid":   {"/v1/messages/count_tokens", &Error{Status: 400, Message: "m"}, `{"error":{"message":"m","type":"invalid_request_error"},"request_id":"id-1","type":"error"}`},
		"Anthropic, too large": {"/v1/messages", &Error{Status: 413, Message: "m"}, `{"error":{"message":"m","type":"request_too_large"},"request_id":"id-1","type":"error"}`},
		"Anthropic, too many":  {"/v1/messages", &Error{Status: 429, Message: "m"}, `{"error":{"message":"m","type":"rate_limit_error"},"request_id":"id-1","type":"error"}`},
		"Anthropic, busy":      {"/v1/messages", &Error{Status: 503, Message: "m"}, `{"error":{"message":"m","type":"overloaded_error"},"request_id":"id-1","type":"error"}`},
		"Anthropic, late":      {"/v1/messages", &Error{Status: 504, Message: "m"}, `{"error":{"message":"m","type":"timeout_error"},"request_id":"id-1","type":"error"}`},
		"Anthropic, server":    {"/v1/messages", &Error{Status: 502, Message: "m"}, `{"error":{"message":"m","type":"api_error"},"request_id":"id-1","type":"error"}`},
		"Anthropic, no token":  {"/v1/messages", &Error{Status: 401, Message: "m"}, `{"error":{"message":"m","type":"authentication_error"},"request_id":"id-1","type":"error"}`},
		"Anthropic, forbidden": {"/v1/messages", &Error{Status: 403, Message: "m"}, `{"error":{"message":"m","type":"permission_error"},"request_id":"id-1","type":"error"}`},
		"Ollama":               {"/api/chat", full, `{"error":"no \"x\""}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, tt.path, nil)
			r.Header.Set("X-Request-Id", "id-1")
			SetRequestID(w, r)
			WriteError(w, r, tt.err)
			assert.Equal(t, tt.err.Status, w.Code)
			assert.Equal(t, tt.want+"\n", w.Body.String())
			assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
			assert.Empty(t, w.Header().Get("Retry-After"))
		})
	}
}

func TestRetryAfterIsInWholeSecondsRoundedUp(t *testing.T) {
	w := httptest.NewRecorder()
	WriteError(w, httptest.NewRequest(http.MethodPost, "/", nil), &Error{Status: 503, RetryAfter: 2100 * time.Millisecond})
	assert.Equal(t, "3", w.Header().Get("Retry-After"))
}

func TestValidRequestIDOfTheClientIsKept(t *testing.T) {
	for given, kept := range map[string]bool{
		"a": true, "req-1/~!": true, strings.Repeat("x", 128): true,
		"": false, strings.Repeat("x", 129): false, "a b": false, "a\tb": false, "é": false, "a\x7f": false,
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header["X-Request-Id"] = []string{given}
		id := SetRequestID(w, r)
		assert.Equal(t, kept, id == given, "%q", given)
		assert.True(t, isValidID(id), id)
		assert.Equal(t, id, w.Header().Get("X-Request-Id"))
		assert.Equal(t, id, r.Header.Get("X-Request-Id"), "for the engine")
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)
	first := SetRequestID(w, r)
	assert.NotEqual(t, first, SetRequestID(w, httptest.NewRequest(http.MethodPost, "/", nil)))
}
