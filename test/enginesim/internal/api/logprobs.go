package api

import (
	"fmt"
	"hash/crc32"

	"hotseat.dev/hotseat/test/enginesim/internal/answers"
)

// logprobs are those of a completion, as vLLM has them.
type logprobs struct {
	TextOffset    []int                `json:"text_offset"`
	TokenLogprobs []float64            `json:"token_logprobs"`
	Tokens        []string             `json:"tokens"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
}

// logprobsOf makes the logprobs of tokens and of the n likeliest in place of each.
func logprobsOf(tokens []string, n int, asIDs bool) logprobs {
	l := logprobs{TextOffset: []int{}, TokenLogprobs: []float64{}, Tokens: []string{}, TopLogprobs: []map[string]float64{}}
	name := func(token string) string {
		if asIDs {
			return fmt.Sprintf("token_id:%d", crc32.ChecksumIEEE([]byte(token))%50_000)
		}
		return token
	}
	offset := 0
	for _, token := range tokens {
		top := map[string]float64{name(token): -0.5}
		for i, other := range answers.Others(token, n-1) {
			top[name(other)] = -1.5 - float64(i)
		}
		l.TextOffset = append(l.TextOffset, offset)
		l.TokenLogprobs = append(l.TokenLogprobs, -0.5)
		l.Tokens = append(l.Tokens, name(token))
		l.TopLogprobs = append(l.TopLogprobs, top)
		offset += len(name(token))
	}
	return l
}
