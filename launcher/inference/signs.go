package inference

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Progress says which signs of life a client wants while its stream waits for a model.
type Progress string

// The kinds of progress. Clients that ignore comments of server-sent events see nothing of
// ProgressComments. ProgressReasoning shows as thinking in chats, and is comments
// on other paths.
const (
	ProgressNone      Progress = ""
	ProgressComments  Progress = "comments"
	ProgressReasoning Progress = "reasoning"
)

const (
	progressHeader = "X-Hotseat-Progress"
	progressQuery  = "hotseat_progress"
)

// ProgressOf reads which signs a request asks for, in its header X-Hotseat-Progress or its
// query parameter hotseat_progress. The error is an *Error.
func ProgressOf(r *http.Request) (Progress, error) {
	asked, param := r.Header.Get(progressHeader), progressHeader
	if asked == "" {
		asked, param = r.URL.Query().Get(progressQuery), progressQuery
	}
	switch p := Progress(asked); p {
	case ProgressNone, ProgressComments, ProgressReasoning:
		return p, nil
	}
	return ProgressNone, invalid("", param, "%s must be %s or %s, not %q", param, ProgressComments, ProgressReasoning, asked)
}

// Signs writes signs of life into a stream that waits. With the first one the answer has
// status 200, so that a failure can only end the stream. It is used by one goroutine at a
// time.
type Signs struct {
	Writer   http.ResponseWriter
	Request  *http.Request
	Progress Progress
	Interval time.Duration // between signs, and before the first one
	Model    string        // as the client named it

	began bool
	id    string
	since time.Time
}

// Began reports whether there were signs: the answer's header is written.
func (s *Signs) Began() bool { return s.began }

// Wait returns nil when ready is closed, and an error if the client leaves or does not read.
// Meanwhile it writes a sign in each interval, with the state of the model.
func (s *Signs) Wait(ready <-chan struct{}, state func() string) error {
	if s.since.IsZero() {
		s.since = time.Now()
	}
	var tick <-chan time.Time
	if s.Progress != ProgressNone {
		ticker := time.NewTicker(s.Interval)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-ready:
			return nil
		case <-s.Request.Context().Done():
			return s.Request.Context().Err()
		case <-tick:
		}
		if err := s.write(s.sign(state())); err != nil {
			return err
		}
	}
}

func (s *Signs) sign(state string) []byte {
	waited := time.Since(s.since).Round(time.Second)
	text := fmt.Sprintf("waiting for %s (%s)", s.Model, waited)
	if state != "" {
		text += ": " + state
	}
	text = strings.Join(strings.Fields(text), " ") // a sign is one line
	if s.Progress != ProgressReasoning || s.Request.URL.Path != "/v1/chat/completions" {
		return []byte(": " + text + "\n\n")
	}
	if s.id == "" {
		s.id = "chatcmpl-" + s.Writer.Header().Get(requestIDHeader)
	}
	data, _ := json.Marshal(map[string]any{ // strings and numbers alone, which can always be encoded
		"id": s.id, "object": "chat.completion.chunk", "created": time.Now().Unix(), "model": s.Model,
		"choices": []any{map[string]any{
			"index": 0, "delta": map[string]string{"reasoning_content": text + "\n"}, "finish_reason": nil,
		}},
	})
	return event("", data)
}

// event is a server-sent event. OpenAI's have no name.
func event(name string, data []byte) []byte {
	if name != "" {
		name = "event: " + name + "\n"
	}
	return fmt.Appendf(nil, "%sdata: %s\n\n", name, data)
}

// write writes at once, and waits no longer than an interval for the client to read.
func (s *Signs) write(data []byte) error {
	control := http.NewResponseController(s.Writer)
	if !s.began {
		s.began = true
		h := s.Writer.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Del("Content-Length")
		s.Writer.WriteHeader(http.StatusOK)
	}
	_ = control.SetWriteDeadline(time.Now().Add(s.Interval)) // where there are no deadlines, the server's own hold
	if _, err := s.Writer.Write(data); err != nil {
		return fmt.Errorf("cannot write a sign of life: %w", err)
	}
	if err := control.Flush(); err != nil {
		return fmt.Errorf("cannot write a sign of life: %w", err)
	}
	_ = control.SetWriteDeadline(time.Time{})
	return nil
}

// Fail ends the answer with an error: by its status, or after signs by an error event.
func (s *Signs) Fail(e *Error) {
	if !s.began {
		WriteError(s.Writer, s.Request, e)
		return
	}
	d := dialectOf(s.Request.URL.Path)
	name := ""
	if d == anthropic {
		name = "error"
	}
	_ = s.write(event(name, e.body(d, s.Writer.Header().Get(requestIDHeader)))) // the client may be gone
}
