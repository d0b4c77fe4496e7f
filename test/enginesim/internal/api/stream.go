package api

import (
	"fmt"
	"io"
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

// events writes events with their types for names, as Anthropic's API has them.
func (s stream) events(bodies ...map[string]any) error {
	for _, body := range bodies {
		data, err := encode(body)
		if err != nil {
			return err
		}
		if err := s.write(fmt.Sprintf("event: %s\ndata: %s\n\n", body["type"], data)); err != nil {
			return err
		}
	}
	return nil
}

func (s stream) raw(data string) error { return s.write(fmt.Sprintf("data: %s\n\n", data)) }

func (s stream) write(text string) error {
	if _, err := io.WriteString(s.w, text); err != nil {
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
