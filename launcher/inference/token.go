package inference

import (
	"net/http"
	"strings"
)

// BearerToken returns the token of the header Authorization, and whether its scheme is Bearer
// (https://www.rfc-editor.org/rfc/rfc6750#section-2.1). Case and spaces around the token do not matter.
func BearerToken(h http.Header) (token string, ok bool) {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(token), true
}
