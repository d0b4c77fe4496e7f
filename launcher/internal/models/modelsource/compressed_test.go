package modelsource

import (
	"compress/gzip"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// compressed answers as a proxy does that compresses what it sends.
func compressed(w http.ResponseWriter, content string) {
	w.Header().Set("Content-Encoding", "gzip")
	w.(http.Flusher).Flush() // its length is not known yet
	zip := gzip.NewWriter(w)
	_, _ = io.WriteString(zip, content)
	_ = zip.Close()
}

func TestProvidersAreAskedForNothingCompressed(t *testing.T) {
	o := &objects{send: func(w http.ResponseWriter, r *http.Request, content string) {
		if r.Header.Get("Accept-Encoding") == "identity" || r.Header.Get("Accept-Encoding") == "gzip" && r.Header.Get("X-Goog-Api-Client") != "" { // Google's library asks for the object as it is stored
			properly(w, r, content)
			return
		}
		compressed(w, content) // RFC 9110, 12.5.3: a proxy may
	}}
	for scheme, s := range weights(t, o, options) {
		stream, err := s.Open(t.Context(), 0, 0)
		require.NoError(t, err, scheme)
		text, err := io.ReadAll(stream)
		require.NoError(t, err, scheme)
		require.NoError(t, stream.Close(), scheme)
		assert.True(t, o.content == string(text), scheme)
	}
}

func TestCompressedAnswersOfProvidersAreRefused(t *testing.T) {
	o := &objects{send: func(w http.ResponseWriter, _ *http.Request, content string) { compressed(w, content) }}
	for scheme, s := range weights(t, o, Options{Stall: 10 * time.Second}) {
		_, err := s.Open(t.Context(), 0, 0)
		require.ErrorContains(t, err, "encoded as gzip although it was asked not to", scheme)
		assert.Equal(t, fetchapi.ReasonInvalid, reasonOf(t, err), scheme)
	}
}
