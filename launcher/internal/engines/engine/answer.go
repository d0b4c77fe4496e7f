package engine

import "slices"

// likeliest is how many answers an engine tells with the likeliest one.
const likeliest = 5

// Answer is what an engine answered to a probe.
type Answer struct {
	Kind      string   `json:"kind"`  // of the question
	Token     string   `json:"token"` // the likeliest answer
	Likeliest []string `json:"likeliest,omitempty"`
}

// Like reports whether an answer is the same as a recorded one but for rounding: it is the
// recorded answer, or one of the likeliest recorded ones, three of which are still likely.
func (a Answer) Like(recorded Answer) bool {
	if a.Token == recorded.Token {
		return true
	}
	common := 0
	for _, token := range a.Likeliest {
		if slices.Contains(recorded.Likeliest, token) {
			common++
		}
	}
	return common >= 3 && slices.Contains(recorded.Likeliest, a.Token)
}
