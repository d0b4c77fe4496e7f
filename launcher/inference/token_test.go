package inference

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBearerTokenIsReadWhateverItsSpelling(t *testing.T) {
	for header, want := range map[string]struct {
		token string
		ok    bool
	}{
		"Bearer secret": {"secret", true}, "bearer  secret ": {"secret", true}, "Bearer": {"", true}, "Basic secret": {"", false}, "": {"", false},
	} {
		token, ok := BearerToken(http.Header{"Authorization": {header}})
		assert.Equal(t, want.token, token, header)
		assert.Equal(t, want.ok, ok, header)
	}
}
