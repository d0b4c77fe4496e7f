package inference

import (
	"crypto/rand"
	"net/http"
)

const (
	requestIDHeader = "X-Request-Id"
	longestID       = 128
)

// SetRequestID gives the request and its answer one id, the client's where that is valid:
// up to 128 visible ASCII characters. It returns the id.
func SetRequestID(w http.ResponseWriter, r *http.Request) string {
	id := r.Header.Get(requestIDHeader)
	if !isValidID(id) {
		id = "req-" + rand.Text()
		r.Header.Set(requestIDHeader, id)
	}
	w.Header().Set(requestIDHeader, id)
	return id
}

func isValidID(id string) bool {
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return id != "" && len(id) <= longestID
}
