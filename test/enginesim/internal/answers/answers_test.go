package answers

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnAnswerBeginsWithTheModelAndDependsOnEverything(t *testing.T) {
	answer := func(model, prompt string, seed int64) string {
		var b strings.Builder
		for i := range 12 {
			b.WriteString(Token(model, prompt, seed, i))
		}
		return b.String()
	}
	base := answer("m", "p", 0)
	require.True(t, strings.HasPrefix(base, "m "))
	require.Equal(t, base, answer("m", "p", 0))
	seen := map[string]bool{base: true}
	for _, other := range []string{answer("n", "p", 0), answer("m", "q", 0), answer("m", "p", 1)} {
		words := other[strings.Index(other, " "):]
		require.False(t, seen[words])
		seen[words] = true
	}
}

func FuzzDetokenizeIsTheInverseOfTokenize(f *testing.F) {
	for _, s := range []string{"", "a", "The quick brown fox", "\x00\xff\xfe", "日本語"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		require.Equal(t, s, Detokenize(Tokenize(s)))
	})
}

func TestTokensThatAreNoneStandForNothing(t *testing.T) {
	require.Empty(t, Detokenize([]int{0, -1, 5 << 24}))
}
