package api

import (
	"encoding/json"
	"net/http"
	"time"

	"hotseat.dev/hotseat/test/enginesim/internal/answers"
)

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	TotalTokens      int `json:"total_tokens"`
	CompletionTokens int `json:"completion_tokens"`
}

// add counts a part of an answer that has ended.
func (u *usage) add(o outcome) {
	u.CompletionTokens += o.tokens
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
}

// fullUsage is usage as an answer that does not stream has it.
type fullUsage struct {
	usage
	PromptTokensDetails     *struct{} `json:"prompt_tokens_details"`
	CompletionTokensDetails *struct{} `json:"completion_tokens_details"`
}

type completionChoice struct {
	Index          int     `json:"index"`
	Text           string  `json:"text"`
	Logprobs       any     `json:"logprobs"`
	FinishReason   *string `json:"finish_reason"`
	StopReason     *string `json:"stop_reason"`
	TokenIDs       []int   `json:"token_ids"`
	PromptLogprobs any     `json:"prompt_logprobs"`
	PromptTokenIDs []int   `json:"prompt_token_ids"`
	RoutedExperts  any     `json:"routed_experts"`
}

type completionAnswer struct {
	ID                string             `json:"id"`
	Object            string             `json:"object"`
	Created           int64              `json:"created"`
	Model             string             `json:"model"`
	Choices           []completionChoice `json:"choices"`
	ServiceTier       *string            `json:"service_tier"`
	SystemFingerprint string             `json:"system_fingerprint"`
	Usage             fullUsage          `json:"usage"`
	KVTransferParams  any                `json:"kv_transfer_params"`
	ECTransferParams  any                `json:"ec_transfer_params"`
	Metrics           any                `json:"metrics"`
}

type completionDelta struct {
	Index          int     `json:"index"`
	Text           string  `json:"text"`
	Logprobs       any     `json:"logprobs"`
	FinishReason   *string `json:"finish_reason"`
	StopReason     *string `json:"stop_reason"`
	PromptTokenIDs []int   `json:"prompt_token_ids"`
	TokenIDs       []int   `json:"token_ids"`
}

type completionChunk struct {
	ID                string            `json:"id"`
	Object            string            `json:"object"`
	Created           int64             `json:"created"`
	Model             string            `json:"model"`
	Choices           []completionDelta `json:"choices"`
	Usage             *usage            `json:"usage,omitempty"`
	SystemFingerprint string            `json:"system_fingerprint,omitempty"`
}

type completionRequest struct {
	params
	Prompt     json.RawMessage `json:"prompt"`
	Logprobs   *int            `json:"logprobs"`
	AsTokenIDs bool            `json:"return_tokens_as_token_ids"`
}

// completionTokens is max_tokens where a completion does not say; a chat goes
// on to the end of the context.
const completionTokens = 16

func (s *Server) completions(w http.ResponseWriter, r *http.Request) {
	var body completionRequest
	if decode(w, r, &body) {
		s.complete(w, r, body)
	}
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request, body completionRequest) {
	if !s.known(w, body.Model) {
		return
	}
	prompts := promptsOf(body.Prompt)
	if len(prompts) == 0 {
		fail(w, http.StatusBadRequest, "BadRequestError", "prompt", "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)")
		return
	}
	if body.MaxTokens == nil {
		body.MaxTokens = new(completionTokens)
	}
	if n := body.Logprobs; n != nil && *n > s.opts.MaxLogprobs {
		fail(w, http.StatusBadRequest, "BadRequestError", "logprobs", "Requested sample logprobs of %d, which is greater than max allowed: %d (parameter=logprobs, value=%d)", *n, s.opts.MaxLogprobs, *n)
		return
	}
	var jobs []job
	u := usage{}
	for _, p := range prompts {
		j, ok := s.job(w, body.params, p, len(answers.Tokenize(p)))
		if !ok {
			return
		}
		u.PromptTokens += j.promptTokens
		for range count(body.N) {
			jobs = append(jobs, j)
		}
	}
	answer := completionAnswer{
		ID: requestID("cmpl-", r), Object: "text_completion", Created: time.Now().Unix(), Model: s.opts.Names[0],
		Choices: make([]completionChoice, len(jobs)), SystemFingerprint: s.fingerprint(),
	}
	if body.Stream {
		s.streamCompletion(w, r, body.params, jobs, answer, u)
		return
	}
	err := s.each(r.Context(), jobs, func(i int, piece string, o outcome) error {
		c := &answer.Choices[i]
		c.Index = i
		c.Text += piece
		if o.finish != "" {
			c.FinishReason, c.StopReason = &o.finish, o.stop
			u.add(o)
			if n := body.Logprobs; n != nil {
				c.Logprobs = logprobsOf(o.made, *n, body.AsTokenIDs)
			}
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

func (s *Server) streamCompletion(w http.ResponseWriter, r *http.Request, p params, jobs []job, answer completionAnswer, u usage) {
	out := newStream(w)
	chunk := completionChunk{ID: answer.ID, Object: answer.Object, Created: answer.Created, Model: answer.Model}
	left, made := len(jobs), make([]int, len(jobs))
	err := s.each(r.Context(), jobs, func(i int, piece string, o outcome) error {
		c, d := chunk, completionDelta{Index: i, Text: piece}
		made[i]++
		if o.finish != "" {
			made[i] = o.tokens
			d.FinishReason, d.StopReason = &o.finish, o.stop
			u.add(o)
			if left--; left == 0 && !p.usageAtEnd() {
				c.SystemFingerprint = answer.SystemFingerprint
			}
		}
		if o.nothing() {
			return nil
		}
		if p.usageAlways() {
			c.Usage = &usage{PromptTokens: jobs[i].promptTokens}
			c.Usage.add(outcome{tokens: made[i]})
		}
		c.Choices = []completionDelta{d}
		return out.send(c)
	})
	if !p.usageAtEnd() {
		out.finish(err, nil)
		return
	}
	chunk.Choices, chunk.Usage, chunk.SystemFingerprint = []completionDelta{}, &u, answer.SystemFingerprint
	out.finish(err, chunk)
}

// promptsOf reads a prompt: a text, a list of texts, tokens, or lists of them.
func promptsOf(raw json.RawMessage) []string {
	var text string
	if json.Unmarshal(raw, &text) == nil && text != "" {
		return []string{text}
	}
	var texts []string
	if json.Unmarshal(raw, &texts) == nil && len(texts) > 0 {
		return texts
	}
	var tokens []int
	if json.Unmarshal(raw, &tokens) == nil && len(tokens) > 0 {
		return []string{answers.Detokenize(tokens)}
	}
	var lists [][]int
	if json.Unmarshal(raw, &lists) != nil {
		return nil
	}
	texts = nil
	for _, l := range lists {
		texts = append(texts, answers.Detokenize(l))
	}
	return texts
}
