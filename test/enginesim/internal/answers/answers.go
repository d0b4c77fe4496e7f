// Package answers makes the texts that the stand-in answers with: they name the
// model, and follow from the prompt and the seed alone.
package answers

import (
	"encoding/binary"
	"hash/fnv"
	"strconv"
)

var words = []string{
	"amber", "basil", "cedar", "delta", "ember", "fjord", "grove", "haven",
	"iris", "jade", "kelp", "linen", "maple", "north", "olive", "pearl",
	"quartz", "river", "stone", "thyme", "umber", "vale", "willow", "yarrow",
}

// Token is the i-th token of model's answer, the first being 0. The first is
// the model's name.
func Token(model, prompt string, seed int64, i int) string {
	if i == 0 {
		return model
	}
	h := fnv.New64a()
	// A hash never fails to write.
	_, _ = h.Write([]byte(model + "\x00" + prompt + "\x00" + strconv.FormatInt(seed, 10) + "\x00" + strconv.Itoa(i)))
	return " " + words[h.Sum64()%uint64(len(words))]
}

// Garbage is every token of a model whose weights are gone.
const Garbage = "!"

// Tokenize cuts text into tokens of up to three bytes. Detokenize is its
// inverse.
func Tokenize(text string) []int {
	tokens := make([]int, 0, len(text)/3+1)
	for len(text) > 0 {
		n := min(3, len(text))
		var b [4]byte
		copy(b[:], text[:n])
		tokens = append(tokens, n<<24|int(binary.LittleEndian.Uint32(b[:])))
		text = text[n:]
	}
	return tokens
}

// Detokenize puts tokens together to a text. A number that Tokenize does not
// make stands for nothing.
func Detokenize(tokens []int) string {
	var text []byte
	for _, t := range tokens {
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], uint32(t))
		if n := t >> 24; n >= 1 && n <= 3 {
			text = append(text, b[:n]...)
		}
	}
	return string(text)
}

// Others are n words that are likely in place of a token, which is none of them.
func Others(token string, n int) []string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(token)) // a hash never fails to write
	var others []string
	for i := range len(words) {
		word := " " + words[(int(h.Sum64()%uint64(len(words)))+i)%len(words)]
		if len(others) < n && word != token {
			others = append(others, word)
		}
	}
	return others
}
