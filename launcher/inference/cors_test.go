package inference

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPreflightsAreAnsweredAsVLLMDoes(t *testing.T) {
	for name, c := range map[string]struct {
		method, headers, private string
		status                   int
		text                     string
	}{
		"a request":                     {"POST", "content-type, x-any", "", 200, "OK"},
		"a request without headers":     {"POST", "", "", 200, "OK"},
		"another method":                {"DELETE", "", "", 400, "Disallowed CORS method"},
		"a page of a public network":    {"POST", "", "true", 400, "Disallowed CORS private-network"},
		"another method of such a page": {"DELETE", "", "true", 400, "Disallowed CORS method"},
	} {
		t.Run(name, func(t *testing.T) {
			r, w := httptest.NewRequest(http.MethodOptions, "/v1/completions", nil), httptest.NewRecorder()
			assert.False(t, IsPreflight(r))
			r.Header.Set("Origin", "https://elsewhere.example")
			r.Header.Set("Access-Control-Request-Method", c.method)
			if c.headers != "" {
				r.Header.Set("Access-Control-Request-Headers", c.headers)
			}
			if c.private != "" {
				r.Header.Set("Access-Control-Request-Private-Network", c.private)
			}
			assert.True(t, IsPreflight(r))
			AnswerPreflight(w, r, "GET", "POST")
			assert.Equal(t, c.status, w.Code)
			assert.Equal(t, c.text, w.Body.String())
			assert.Equal(t, "*", w.Header().Get("Access-Control-Allow-Origin"))
			assert.Equal(t, "GET, POST", w.Header().Get("Access-Control-Allow-Methods"))
			assert.Equal(t, c.headers, w.Header().Get("Access-Control-Allow-Headers"))
		})
	}
}

func TestAnswersCanBeReadByScriptsOnce(t *testing.T) {
	r, h := httptest.NewRequest(http.MethodGet, "/v1/models", nil), http.Header{}
	AllowReading(h, r)
	assert.Empty(t, h.Get("Access-Control-Allow-Origin"), "it is no script that asks")
	r.Header.Set("Origin", "https://elsewhere.example")
	AllowReading(h, r)
	assert.Equal(t, http.Header{"Vary": {"Origin"}, "Access-Control-Allow-Origin": {"*"}}, h)
	ForgetReading(h)
	assert.Empty(t, h)
}
