package api

import (
	"encoding/json"
	"net/http"
	"time"
)

// messages answers in the shape of Anthropic's API. It does not stream.
func (s *Server) messages(w http.ResponseWriter, r *http.Request) {
	j, ok := s.messagesJob(w, r)
	if !ok {
		return
	}
	text, o, err := s.whole(r, j)
	if err != nil {
		s.broken(w, "", err)
		return
	}
	reasons := map[string]string{"length": "max_tokens", "stop": "end_turn", "abort": "end_turn"}
	type part struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	type tokens struct {
		Input  int `json:"input_tokens"`
		Output int `json:"output_tokens"`
	}
	reply(w, http.StatusOK, struct {
		ID         string `json:"id"`
		Type       string `json:"type"`
		Role       string `json:"role"`
		Content    []part `json:"content"`
		Model      string `json:"model"`
		StopReason string `json:"stop_reason"`
		Usage      tokens `json:"usage"`
	}{requestID("chatcmpl-", r), "message", "assistant", []part{{"text", text}}, s.opts.Names[0], reasons[o.finish], tokens{j.promptTokens, o.tokens}})
}

func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) {
	j, ok := s.messagesJob(w, r)
	if !ok {
		return
	}
	n := j.promptTokens
	reply(w, http.StatusOK, struct {
		Input   int            `json:"input_tokens"`
		Context map[string]int `json:"context_management"`
	}{n, map[string]int{"original_input_tokens": n}})
}

// messagesJob reads a request in the shape of Anthropic's API.
func (s *Server) messagesJob(w http.ResponseWriter, r *http.Request) (j job, ok bool) {
	var body struct {
		chatRequest
		System json.RawMessage `json:"system"`
	}
	if !decode(w, r, &body) {
		return job{}, false
	}
	jobs, ok := s.chatJobs(w, withSystem(body.chatRequest, body.System))
	if !ok {
		return job{}, false
	}
	return jobs[0], true
}

// withSystem puts Anthropic's system prompt before the conversation.
func withSystem(body chatRequest, system json.RawMessage) chatRequest {
	if len(system) > 0 && body.Messages != nil {
		all := append([]message{{Role: "system", Content: system}}, *body.Messages...)
		body.Messages = &all
	}
	return body
}

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
