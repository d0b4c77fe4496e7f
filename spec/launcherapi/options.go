package launcherapi

import (
	"encoding/json"
	"strings"

	"github.com/kballard/go-shellquote"
)

// blanks separate the words of an options string.
const blanks = " \n\t"

// SplitOptions splits an options string by the rules of a POSIX shell, except for words
// that are JSON, or have JSON after "=", beginning with { or [: those are kept unchanged.
// The llm-d launcher splits at blanks only, so its clients do not quote such words.
func SplitOptions(options string) ([]string, error) {
	return shellquote.Split(quoteJSON(options))
}

// quoteJSON puts quotes around the words that are kept unchanged.
func quoteJSON(options string) string {
	var out strings.Builder
	var quote byte    // the quote that is open
	wordAhead := true // a word may begin at i
	for i := 0; i < len(options); i++ {
		c := options[i]
		if wordAhead {
			word := options[i:]
			if end := strings.IndexAny(word, blanks); end >= 0 {
				word = word[:end]
			}
			if holdsJSON(word) {
				out.WriteString(shellquote.Join(word))
				i += len(word) - 1
				wordAhead = false
				continue
			}
		}
		out.WriteByte(c)
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(options):
			i++
			out.WriteByte(options[i])
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case c == quote:
			quote = 0
		}
		continued := c == '\\' && options[i] == '\n' // an escaped line end neither ends nor begins a word
		wordAhead = quote == 0 && (continued && wordAhead || strings.IndexByte(blanks, c) >= 0)
	}
	return out.String()
}

func holdsJSON(word string) bool { return isJSON(word) || isJSON(afterEquals(word)) }

func afterEquals(word string) string {
	_, value, _ := strings.Cut(word, "=")
	return value
}

func isJSON(text string) bool {
	return text != "" && (text[0] == '{' || text[0] == '[') && json.Valid([]byte(text))
}
