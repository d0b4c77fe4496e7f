package api

import (
	"net/http"
	"time"
)

type chatMessage struct {
	Role         string  `json:"role"`
	Content      string  `json:"content"`
	Refusal      *string `json:"refusal"`
	Annotations  any     `json:"annotations"`
	Audio        any     `json:"audio"`
	FunctionCall any     `json:"function_call"`
	Reasoning    *string `json:"reasoning"`
}

type chatChoice struct {
	Index         int         `json:"index"`
	Message       chatMessage `json:"message"`
	Logprobs      any         `json:"logprobs"`
	FinishReason  *string     `json:"finish_reason"`
	StopReason    *string     `json:"stop_reason"`
	TokenIDs      []int       `json:"token_ids"`
	RoutedExperts any         `json:"routed_experts"`
}

type chatAnswer struct {
	ID                string       `json:"id"`
	Object            string       `json:"object"`
	Created           int64        `json:"created"`
	Model             string       `json:"model"`
	Choices           []chatChoice `json:"choices"`
	ServiceTier       *string      `json:"service_tier"`
	SystemFingerprint string       `json:"system_fingerprint"`
	Usage             fullUsage    `json:"usage"`
	PromptLogprobs    any          `json:"prompt_logprobs"`
	PromptTokenIDs    []int        `json:"prompt_token_ids"`
	PromptText        *string      `json:"prompt_text"`
	KVTransferParams  any          `json:"kv_transfer_params"`
	ECTransferParams  any          `json:"ec_transfer_params"`
	Metrics           any          `json:"metrics"`
}

// chatChunk is a piece of a streamed answer. Its choices differ in their
// fields: the first, those in between, and the last.
type chatChunk struct {
	ID                string `json:"id"`
	Object            string `json:"object"`
	Created           int64  `json:"created"`
	Model             string `json:"model"`
	Choices           []any  `json:"choices"`
	Usage             *usage `json:"usage,omitempty"`
	SystemFingerprint string `json:"system_fingerprint,omitempty"`
}

type firstChunk struct {
	chatChunk
	PromptTokenIDs []int   `json:"prompt_token_ids"`
	PromptText     *string `json:"prompt_text"`
}

type chatDelta struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content"`
}

type firstDelta struct {
	Index        int       `json:"index"`
	Delta        chatDelta `json:"delta"`
	Logprobs     any       `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"`
}

type nextDelta struct {
	firstDelta
	TokenIDs []int `json:"token_ids"`
}

type lastDelta struct {
	firstDelta
	StopReason *string `json:"stop_reason"`
	TokenIDs   []int   `json:"token_ids"`
}

type chatRequest struct {
	params
	Messages *[]message `json:"messages"`
}

func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	var body chatRequest
	if decode(w, r, &body) {
		s.converse(w, r, body)
	}
}

func (s *Server) converse(w http.ResponseWriter, r *http.Request, body chatRequest) {
	jobs, ok := s.chatJobs(w, body)
	if !ok {
		return
	}
	u := usage{PromptTokens: jobs[0].promptTokens}
	answer := chatAnswer{
		ID: requestID("chatcmpl-", r), Object: "chat.completion", Created: time.Now().Unix(), Model: s.opts.Names[0],
		Choices: make([]chatChoice, len(jobs)), SystemFingerprint: s.fingerprint(),
	}
	if body.Stream {
		s.streamChat(w, r, body.params, jobs, answer, u)
		return
	}
	err := s.each(r.Context(), jobs, func(i int, piece string, o outcome) error {
		c := &answer.Choices[i]
		c.Index, c.Message.Role = i, "assistant"
		c.Message.Content += piece
		if o.finish != "" {
			c.FinishReason, c.StopReason = &o.finish, o.stop
			u.add(o)
		}
		return nil
	})
	if err != nil {
		s.broken(w, "", err)
		return
	}
	answer.Usage.usage = u
	reply(w, http.StatusOK, answer)
}

// chatJobs checks a conversation and makes the work of it, one job for each
// answer asked for. It answers itself, and says false, when it is not right.
func (s *Server) chatJobs(w http.ResponseWriter, body chatRequest) ([]job, bool) {
	switch {
	case body.Messages == nil:
		missing(w, "body.messages", "<dict of 1 items>")
		return nil, false
	case !s.known(w, body.Model):
		return nil, false
	case len(*body.Messages) == 0:
		fail(w, http.StatusBadRequest, "BadRequestError", "", "Cannot apply chat template to an empty conversation. Provide at least one message.")
		return nil, false
	}
	prompt, n := template(*body.Messages)
	j, ok := s.job(w, body.params, prompt, n)
	if !ok {
		return nil, false
	}
	jobs := make([]job, count(body.N))
	for i := range jobs {
		jobs[i] = j
	}
	return jobs, true
}

func (s *Server) streamChat(w http.ResponseWriter, r *http.Request, p params, jobs []job, answer chatAnswer, u usage) {
	out := newStream(w)
	chunk := chatChunk{ID: answer.ID, Object: "chat.completion.chunk", Created: answer.Created, Model: answer.Model}
	left, started := len(jobs), make([]bool, len(jobs))
	err := s.each(r.Context(), jobs, func(i int, piece string, o outcome) error {
		c := chunk
		if !started[i] {
			started[i] = true
			first := firstChunk{chatChunk: c}
			first.Choices = []any{firstDelta{Index: i, Delta: chatDelta{Role: "assistant"}}}
			if err := out.send(first); err != nil {
				return err
			}
		}
		d := firstDelta{Index: i, Delta: chatDelta{Content: piece}}
		if o.finish == "" {
			c.Choices = []any{nextDelta{firstDelta: d}}
			return out.send(c)
		}
		d.FinishReason = &o.finish
		u.add(o)
		if left--; left == 0 && !p.usageAtEnd() {
			c.SystemFingerprint = answer.SystemFingerprint
		}
		if o.nothing() {
			return nil
		}
		c.Choices = []any{lastDelta{firstDelta: d, StopReason: o.stop}}
		return out.send(c)
	})
	if !p.usageAtEnd() {
		out.finish(err, nil)
		return
	}
	chunk.Choices, chunk.Usage, chunk.SystemFingerprint = []any{}, &u, answer.SystemFingerprint
	out.finish(err, chunk)
}
