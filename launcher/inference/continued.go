package inference

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
)

// continued is an answer whose header was written with a sign of life. If the engine, or the gate
// before it, answers with an error, the error is kept, since it is no event of the stream.
type continued struct {
	http.ResponseWriter

	status int // of an error; 0: there is none
	text   bytes.Buffer
}

// mostOfError bounds what is kept of an error.
const mostOfError = 64 << 10

func (c *continued) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		c.status = status
	}
}

func (c *continued) Write(data []byte) (int, error) {
	if c.status == 0 {
		return c.ResponseWriter.Write(data)
	}
	c.text.Write(data[:min(len(data), mostOfError-c.text.Len())])
	return len(data), nil
}

func (c *continued) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Continue has a request answered by a handler after signs of life. The error is an *Error of the engine or its
// gate; the caller gives it to [Signs.Fail].
func Continue(w http.ResponseWriter, handler http.Handler, r *http.Request) error {
	c := &continued{ResponseWriter: w}
	handler.ServeHTTP(c, r)
	if c.status == 0 {
		return nil
	}
	var said struct {
		Error struct{ Message, Type, Param, Code string }
	}
	_ = json.Unmarshal(c.text.Bytes(), &said) // what is no such error is given as it is
	e := said.Error
	message := cmp.Or(e.Message, strings.TrimSpace(c.text.String()), http.StatusText(c.status))
	return &Error{Status: c.status, Message: message, Type: e.Type, Param: e.Param, Code: e.Code}
}
