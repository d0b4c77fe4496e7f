package api

import (
	"encoding/json"
	"net/http"
)

type messagePart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type messageTokens struct {
	Input  int `json:"input_tokens"`
	Output int `json:"output_tokens"`
}

type messageAnswer struct {
	ID         string        `json:"id"`
	Type       string        `json:"type"`
	Role       string        `json:"role"`
	Content    []messagePart `json:"content"`
	Model      string        `json:"model"`
	StopReason *string       `json:"stop_reason"`
	Usage      messageTokens `json:"usage"`
}

// messages answers in the shape of Anthropic's API.
func (s *Server) messages(w http.ResponseWriter, r *http.Request) {
	j, stream, ok := s.messagesJob(w, r)
	if !ok {
		return
	}
	answer := messageAnswer{
		ID: requestID("chatcmpl-", r), Type: "message", Role: "assistant", Content: []messagePart{}, Model: s.opts.Names[0],
		Usage: messageTokens{Input: j.promptTokens},
	}
	if stream {
		s.streamMessage(w, r, j, answer)
		return
	}
	text, o, err := s.whole(r, j)
	if err != nil {
		s.broken(w, "", err)
		return
	}
	answer.Content, answer.Usage.Output = append(answer.Content, messagePart{"text", text}), o.tokens
	answer.StopReason, _ = stopReasons(o)
	reply(w, http.StatusOK, answer)
}

// stopReasons returns why an answer ended, and the text that ended it.
func stopReasons(o outcome) (reason, text *string) {
	ended := "end_turn"
	switch {
	case o.stop != nil:
		ended = "stop_sequence"
	case o.finish == "length":
		ended = "max_tokens"
	}
	return &ended, o.stop
}

// streamMessage streams an answer in the events of Anthropic's API.
func (s *Server) streamMessage(w http.ResponseWriter, r *http.Request, j job, answer messageAnswer) {
	out := newStream(w)
	var last outcome
	began := false
	err := s.each(r.Context(), []job{j}, func(_ int, piece string, o outcome) error {
		last = o
		if !began {
			began = true
			if err := out.events(
				map[string]any{"type": "message_start", "message": answer},
				map[string]any{"type": "content_block_start", "index": 0, "content_block": messagePart{Type: "text"}},
			); err != nil {
				return err
			}
		}
		if piece == "" {
			return nil
		}
		return out.events(map[string]any{"type": "content_block_delta", "index": 0, "delta": messagePart{"text_delta", piece}})
	})
	if err != nil {
		// A client that has gone is told nothing.
		_ = out.events(map[string]any{"type": "error", "error": map[string]string{"type": "internal_error", "message": explain("", err)}})
		return
	}
	reason, text := stopReasons(last)
	// See above.
	_ = out.events(
		map[string]any{"type": "content_block_stop", "index": 0},
		map[string]any{"type": "message_delta", "delta": map[string]any{"stop_reason": reason, "stop_sequence": text}, "usage": messageTokens{j.promptTokens, last.tokens}},
		map[string]any{"type": "message_stop"},
	)
}

func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) {
	j, _, ok := s.messagesJob(w, r)
	if !ok {
		return
	}
	n := j.promptTokens
	reply(w, http.StatusOK, struct {
		Input   int            `json:"input_tokens"`
		Context map[string]int `json:"context_management"`
	}{n, map[string]int{"original_input_tokens": n}})
}

// messagesJob reads a request in the shape of Anthropic's API, and whether it asks for a stream.
func (s *Server) messagesJob(w http.ResponseWriter, r *http.Request) (j job, stream, ok bool) {
	var body struct {
		chatRequest
		System json.RawMessage `json:"system"`
	}
	if !decode(w, r, &body) {
		return job{}, false, false
	}
	jobs, ok := s.chatJobs(w, withSystem(body.chatRequest, body.System))
	if !ok {
		return job{}, false, false
	}
	return jobs[0], body.Stream, true
}

// withSystem puts Anthropic's system prompt before the conversation.
func withSystem(body chatRequest, system json.RawMessage) chatRequest {
	if len(system) > 0 && body.Messages != nil {
		all := append([]message{{Role: "system", Content: system}}, *body.Messages...)
		body.Messages = &all
	}
	return body
}
