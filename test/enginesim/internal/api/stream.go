package api

import (
	"fmt"
	"net/http"
)

// stream writes server-sent events, one at a time.
type stream struct{ w http.ResponseWriter }

// newStream begins the answer: its head is sent before there is anything to say.
func newStream(w http.ResponseWriter) stream {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	// The head goes out with the first event then, if at all.
	_ = http.NewResponseController(w).Flush()
	return stream{w}
}

// send writes one event at once.
func (s stream) send(body any) error {
	data, err := encode(body)
	if err != nil {
		return err
	}
	return s.raw(string(data))
}

func (s stream) raw(data string) error {
	if _, err := fmt.Fprintf(s.w, "data: %s\n\n", data); err != nil {
		return fmt.Errorf("cannot send an event: %w", err)
	}
	if err := http.NewResponseController(s.w).Flush(); err != nil {
		return fmt.Errorf("cannot flush an event: %w", err)
	}
	return nil
}

// finish ends the stream: with an event that tells err, or with the usage when
// that was asked for, and with [DONE] in every case. A client that has gone is
// told nothing.
func (s stream) finish(err error, usage any) {
	switch {
	case err != nil:
		// See above.
		_ = s.raw(fmt.Sprintf(`{"error": {"message": %q, "type": "InternalServerError", "param": null, "code": 500}}`, explain("", err)))
	case usage != nil:
		// See above.
		_ = s.send(usage)
	}
	// See above.
	_ = s.raw("[DONE]")
}
