package api

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"slices"
	"strings"
)

// params are the fields that chat and completion requests share.
type params struct {
	Model               *string         `json:"model"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Temperature         *float64        `json:"temperature"`
	N                   *int            `json:"n"`
	Seed                *int64          `json:"seed"`
	Stop                json.RawMessage `json:"stop"`
	Stream              bool            `json:"stream"`
	StreamOptions       *streamOptions  `json:"stream_options"`
	IgnoreEOS           bool            `json:"ignore_eos"`
	TopP                *float64        `json:"top_p"`
}

type streamOptions struct {
	IncludeUsage         bool `json:"include_usage"`
	ContinuousUsageStats bool `json:"continuous_usage_stats"`
}

// usageAtEnd says whether a stream ends with the usage.
func (p params) usageAtEnd() bool { return p.StreamOptions != nil && p.StreamOptions.IncludeUsage }

// usageAlways says whether each event tells the usage so far.
func (p params) usageAlways() bool { return p.usageAtEnd() && p.StreamOptions.ContinuousUsageStats }

// known answers 404, and says false, when the model is not one of the served.
func (s *Server) known(w http.ResponseWriter, model *string) bool {
	if model == nil || *model == "" || slices.Contains(s.opts.Names, *model) {
		return true
	}
	fail(w, http.StatusNotFound, "NotFoundError", "model", "The model `%s` does not exist.", *model)
	return false
}

// problem is what is wrong with a request.
type problem struct{ param, message string }

// job checks the parameters against a prompt and makes the work of them. It
// answers itself, and says false, when they are not right.
func (s *Server) job(w http.ResponseWriter, p params, prompt string, promptTokens int) (job, bool) {
	asked := 0
	if p.MaxTokens != nil {
		asked = *p.MaxTokens
	}
	if p.MaxCompletionTokens != nil {
		asked = *p.MaxCompletionTokens
	}
	limited := p.MaxTokens != nil || p.MaxCompletionTokens != nil
	if bad := s.check(p, limited, asked, promptTokens); bad != nil {
		fail(w, http.StatusBadRequest, "BadRequestError", bad.param, "%s", bad.message)
		return job{}, false
	}
	j := job{prompt: prompt, promptTokens: promptTokens, seed: s.opts.Seed, maxTokens: s.opts.MaxModelLen - promptTokens, ignoreEOS: p.IgnoreEOS, stop: stops(p.Stop)}
	if limited {
		j.maxTokens = asked
	}
	if p.Seed != nil {
		j.seed = *p.Seed
	}
	if greedy(p) {
		j.seed = 0 // no sampling, so no seed
	}
	return j, true
}

func greedy(p params) bool { return p.Temperature != nil && *p.Temperature == 0 }

func (s *Server) check(p params, limited bool, asked, promptTokens int) *problem {
	limit := s.opts.MaxModelLen
	switch {
	case p.Temperature != nil && *p.Temperature < 0:
		t := pythonFloat(*p.Temperature)
		return &problem{"temperature", fmt.Sprintf("temperature must be non-negative, got %s. (parameter=temperature, value=%s)", t, t)}
	case p.TopP != nil && (*p.TopP <= 0 || *p.TopP > 1):
		t := pythonFloat(*p.TopP)
		return &problem{"top_p", fmt.Sprintf("top_p must be in (0, 1], got %s. (parameter=top_p, value=%s)", t, t)}
	case p.StreamOptions != nil && !p.Stream:
		return &problem{"stream_options", "Stream options can only be defined when `stream=True`. (parameter=stream_options)"}
	case limited && asked < 1:
		return &problem{"max_tokens", fmt.Sprintf("max_tokens must be at least 1, got %d. (parameter=max_tokens, value=%d)", asked, asked)}
	case limited && asked > limit:
		return &problem{"max_tokens", fmt.Sprintf("max_tokens=%d cannot be greater than max_model_len=max_total_tokens=%d. Please request fewer output tokens. (parameter=max_tokens, value=%d)", asked, limit, asked)}
	case promptTokens+max(asked, 1) > limit:
		// vLLM reads no more of the prompt than it needs to know that.
		promptTokens = limit - asked + 1
		return &problem{"input_tokens", fmt.Sprintf("This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains at least %d input tokens, for a total of at least %d tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=%d)",
			limit, asked, promptTokens, promptTokens+asked, promptTokens)}
	case count(p.N) > 1 && greedy(p):
		return &problem{"", fmt.Sprintf("n must be 1 when using greedy sampling, got %d.", *p.N)}
	}
	return nil
}

// stops reads stop strings: one, or a list.
func stops(raw json.RawMessage) []string {
	var one string
	var list []string
	if json.Unmarshal(raw, &one) == nil && one != "" {
		return []string{one}
	}
	if json.Unmarshal(raw, &list) == nil {
		return list
	}
	return nil
}

// count reads n, the number of answers to each prompt.
func count(n *int) int {
	if n == nil {
		return 1
	}
	return max(*n, 1)
}

// requestID is the client's own when it sent one.
func requestID(prefix string, r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); id != "" {
		return prefix + id
	}
	return prefix + newID()
}

// fingerprint is the same for all answers of one configuration.
func (s *Server) fingerprint() string {
	return fmt.Sprintf("vllm-%s-%08x", s.opts.Version, crc32.ChecksumIEEE([]byte(s.opts.Root)))
}

func pythonFloat(f float64) string {
	s := fmt.Sprint(f)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}
