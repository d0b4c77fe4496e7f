package engine

import (
	"context"
	"encoding/json"
	"errors"
)

// llamaProbes are the questions to llama-server, as those to vLLM.
var llamaProbes = []probe{
	{kindLikeliest, "/v1/completions", func(model string) any {
		return map[string]any{"model": model, "prompt": probeText, "max_tokens": 1, "temperature": 0, "logprobs": likeliest}
	}, readLlamaCompletion},
	{kindCompletion, "/v1/completions", func(model string) any {
		return map[string]any{"model": model, "prompt": probeText, "max_tokens": 1, "temperature": 0}
	}, readLlamaCompletion},
	{"embedding", "/v1/embeddings", func(model string) any { return map[string]any{"model": model, "input": probeText} }, readNumbers},
}

// Probe asks for one answer. Without a kind it tries the kinds until the engine takes one.
func (l *LlamaCpp) Probe(ctx context.Context, base, model string, key Secret, kind string) (Answer, error) {
	return l.ask(ctx, base, model, key, kind, llamaProbes)
}

// readLlamaCompletion reads a completion. llama-server gives probabilities there as vLLM does for
// chats.
func readLlamaCompletion(body []byte) (Answer, error) {
	var completion struct {
		Choices []struct {
			Text     string `json:"text"`
			Logprobs *struct {
				Content []struct {
					Token string `json:"token"`
					Top   []struct {
						Token string `json:"token"`
					} `json:"top_logprobs"`
				} `json:"content"`
			} `json:"logprobs"`
		} `json:"choices"`
	}
	switch err := json.Unmarshal(body, &completion); {
	case err != nil:
		return Answer{}, err
	case len(completion.Choices) == 0:
		return Answer{}, errors.New("there is no choice in it")
	}
	choice := completion.Choices[0]
	answer := Answer{Token: choice.Text}
	if l := choice.Logprobs; l != nil && len(l.Content) > 0 {
		answer.Token = l.Content[0].Token
		for _, top := range l.Content[0].Top { // the likeliest first
			answer.Likeliest = append(answer.Likeliest, top.Token)
		}
	}
	return answer, nil
}

// llamaCounters begin the lines of the counters that grow when llama-server does something.
var llamaCounters = []string{"llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total", "llamacpp:n_decode_total"}

// Progress reads counters from GET /metrics, for which the engine asks for its key too.
func (l *LlamaCpp) Progress(ctx context.Context, base string, key Secret) (string, error) {
	return l.counters(ctx, base, key, llamaCounters)
}
