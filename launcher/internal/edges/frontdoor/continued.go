package frontdoor

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strings"

	"hotseat.dev/hotseat/launcher/inference"
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

// answer has a request answered. The error is an *[inference.Error] of the engine or its gate.
func (c *continued) answer(handler http.Handler, r *http.Request) error {
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
	return &inference.Error{Status: c.status, Message: message, Type: e.Type, Param: e.Param, Code: e.Code}
}
