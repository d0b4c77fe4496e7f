package engine

import "slices"

// Kinds of questions.
const (
	kindCompletion = "completion"
	// kindLikeliest asks an engine of the kind "completion" for the likeliest answers too. It is
	// dear: for the first such question vLLM 0.30.0 compiles a function (11.5 s on a CPU with
	// empty caches, where the first token alone took 0.07 s).
	kindLikeliest = "likeliest"
)

// DoubtedKind returns the kind of question by which an answer is checked that is unlike the
// recorded one. kind is that of the recorded answer.
func DoubtedKind(kind string) string {
	if kind == kindCompletion {
		return kindLikeliest
	}
	return kind
}

// likeliest is how many answers an engine tells with the likeliest one.
const likeliest = 5

// Answer is what an engine answered to a probe.
type Answer struct {
	Kind      string   `json:"kind"`  // of the question
	Token     string   `json:"token"` // the likeliest answer
	Likeliest []string `json:"likeliest,omitempty"`
}

// Like reports whether an answer is the same as a recorded one but for rounding: it is the
// recorded answer, or one of the likeliest recorded ones, three of which are still likely. If
// no likeliest ones were recorded, the recorded answer has to be among the likeliest ones now.
func (a Answer) Like(recorded Answer) bool {
	if a.Token == recorded.Token {
		return true
	}
	if len(recorded.Likeliest) == 0 {
		return slices.Contains(a.Likeliest, recorded.Token)
	}
	common := 0
	for _, token := range a.Likeliest {
		if slices.Contains(recorded.Likeliest, token) {
			common++
		}
	}
	return common >= 3 && slices.Contains(recorded.Likeliest, a.Token)
}
