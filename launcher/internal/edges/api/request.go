package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"hotseat.dev/hotseat/spec/connlimit"
)

// drainBytes is how much of a body that is too large is still read, so that a
// client which sends before it reads gets to see the answer.
const drainBytes = 4 * MaxBodyBytes

// readBody reads the whole body before anything looks at it, within bounds of size, but
// for calls that read theirs while it comes. The server bounds how long that takes.
func (s *Server) readBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody || streamsBody(r) {
			next.ServeHTTP(w, r)
			return
		}
		came := connlimit.AwaitBody(r)
		data, err := io.ReadAll(io.LimitReader(r.Body, MaxBodyBytes))
		if len(data) == MaxBodyBytes {
			_, err = io.CopyN(io.Discard, r.Body, drainBytes)
			if err == nil || errors.Is(err, io.EOF) {
				err = errTooLarge
			}
		}
		came()
		if err != nil {
			s.bodyProblem(err).write(w)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(data))
		next.ServeHTTP(w, r)
	})
}

var errTooLarge = fmt.Errorf("the body is too large; it must be smaller than %d bytes", MaxBodyBytes)

func (s *Server) bodyProblem(err error) *problem {
	switch {
	case errors.Is(err, errTooLarge):
		return newProblem(http.StatusRequestEntityTooLarge, err.Error(), nil).with("Connection", "close")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return newProblem(http.StatusRequestTimeout, fmt.Sprintf("the body did not come within %s", s.opts.BodyTimeout), nil).with("Connection", "close")
	}
	return newProblem(http.StatusBadRequest, "cannot read the body: "+err.Error(), nil).with("Connection", "close")
}
