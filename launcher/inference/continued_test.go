package inference

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestErrorAfterSignsIsKeptAndTheRestPasses(t *testing.T) {
	for name, c := range map[string]struct {
		status        int
		said, message string
	}{
		"an error of the OpenAI API": {400, `{"error":{"message":"too long","type":"BadRequestError"}}`, "too long"},
		"another text":               {502, "bad gateway\n", "bad gateway"},
		"no text":                    {503, "", "Service Unavailable"},
		"a long text":                {500, strings.Repeat("x", 2*mostOfError), strings.Repeat("x", mostOfError)},
	} {
		rec := httptest.NewRecorder()
		err := Continue(rec, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.said))
		}), httptest.NewRequest("POST", "/v1/completions", nil))
		var e *Error
		require.ErrorAs(t, err, &e, name)
		assert.Equal(t, c.status, e.Status, name)
		assert.Equal(t, c.message, e.Message, name)
		assert.Empty(t, rec.Body.String(), name)
	}
	rec := httptest.NewRecorder()
	require.NoError(t, Continue(rec, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write([]byte("data: x\n\n"))
	}), httptest.NewRequest("POST", "/v1/completions", nil)))
	assert.Equal(t, "data: x\n\n", rec.Body.String())
}
