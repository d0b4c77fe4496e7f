package launcherapi

import "strings"

// longestID is the length of the longest id of an instance.
const longestID = 128

// IsID reports whether a text may be the id of an instance: a letter or digit, then letters, digits,
// '.', '_' or '-', at most 128 characters in all.
func IsID(text string) bool {
	if text == "" || len(text) > longestID || !isLetterOrDigit(rune(text[0])) {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return !isLetterOrDigit(r) && !strings.ContainsRune("._-", r) })
}

func isLetterOrDigit(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}
