package api

import (
	"encoding/json"
	"net/http"
	"time"
)

// responses answers in the shape of OpenAI's responses API. It does not stream.
func (s *Server) responses(w http.ResponseWriter, r *http.Request) {
	var body struct {
		params
		Input           json.RawMessage `json:"input"`
		MaxOutputTokens *int            `json:"max_output_tokens"`
	}
	if !decode(w, r, &body) {
		return
	}
	if len(body.Input) == 0 {
		missing(w, "body.input", "<dict of 1 items>")
		return
	}
	body.MaxTokens = body.MaxOutputTokens
	var turns []message
	if json.Unmarshal(body.Input, &turns) != nil {
		turns = []message{{Role: "user", Content: body.Input}}
	}
	jobs, ok := s.chatJobs(w, chatRequest{params: body.params, Messages: &turns})
	if !ok {
		return
	}
	j := jobs[0]
	text, o, err := s.whole(r, j)
	if err != nil {
		s.broken(w, "", err)
		return
	}
	answer := responseAnswer{
		ID: "resp_" + newID(), CreatedAt: time.Now().Unix(), Model: s.opts.Names[0], Object: "response",
		Output: []responseItem{{
			ID: "msg_" + newID(), Content: []responsePart{{Annotations: []any{}, Text: text, Type: "output_text"}},
			Role: "assistant", Status: "completed", Type: "message",
		}},
		ParallelToolCalls: true, Temperature: 1, ToolChoice: "none", Tools: []any{}, TopP: 1, MaxOutputTokens: j.maxTokens,
		ServiceTier: "auto", Status: "completed", Truncation: "disabled", Usage: responseTokens(j.promptTokens, o.tokens),
	}
	if body.Temperature != nil {
		answer.Temperature = float(*body.Temperature)
	}
	if o.finish == "length" {
		answer.Status, answer.IncompleteDetails = "incomplete", map[string]string{"reason": "max_output_tokens"}
	}
	reply(w, http.StatusOK, answer)
}

// whole makes one answer and returns it at its end.
func (s *Server) whole(r *http.Request, j job) (text string, last outcome, err error) {
	err = s.each(r.Context(), []job{j}, func(_ int, piece string, o outcome) error {
		text += piece
		last = o
		return nil
	})
	return text, last, err
}
