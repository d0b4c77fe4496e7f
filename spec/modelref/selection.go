package modelref

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Selection selects files of a model by patterns, as `hf download --include --exclude` does. It
// takes the files that a pattern of Include matches, or all files if Include is empty, except
// those that a pattern of Exclude matches. Two selections of one revision are two versions.
type Selection struct {
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
}

// Limits of a selection.
const (
	maxPatterns = 64
	maxPattern  = 256
)

// Clean returns the canonical form of the selection: sorted, without duplicates, and with
// slashes. A pattern that ends with a slash becomes one for all files of that folder.
func (s Selection) Clean() Selection {
	clean := func(patterns []string) (all []string) {
		for _, p := range patterns {
			if p = strings.ReplaceAll(p, `\`, "/"); strings.HasSuffix(p, "/") {
				p += "*"
			}
			all = append(all, p)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	return Selection{Include: clean(s.Include), Exclude: clean(s.Exclude)}
}

// Check refuses patterns that cannot match the name of a file, and too many patterns.
func (s Selection) Check() error {
	for _, p := range slices.Concat(s.Include, s.Exclude) {
		switch {
		case p == "":
			return errors.New("a pattern of files is empty; one is as *.safetensors")
		case !utf8.ValidString(p) || strings.ContainsFunc(p, unicode.IsControl):
			return fmt.Errorf("the pattern %q has a character that names of files may not have", p)
		case len(p) > maxPattern:
			return fmt.Errorf("a pattern of files has %d bytes; at most %d are taken", len(p), maxPattern)
		case strings.HasPrefix(p, "/"):
			return fmt.Errorf("the pattern %q matches nothing: names are relative to the model's folder, without a slash at the beginning", p)
		}
	}
	if n := max(len(s.Include), len(s.Exclude)); n > maxPatterns {
		return fmt.Errorf("%d patterns of files are too many; at most %d are taken", n, maxPatterns)
	}
	return nil
}

// All reports whether the selection takes all files.
func (s Selection) All() bool { return len(s.Include) == 0 && len(s.Exclude) == 0 }

// SameSelection reports whether two selections have the same patterns in the same order.
func (s Selection) SameSelection(other Selection) bool {
	return slices.Equal(s.Include, other.Include) && slices.Equal(s.Exclude, other.Exclude)
}

// String returns the selection as flags of a pull. It is empty if the selection takes all files.
func (s Selection) String() string {
	var words []string
	for _, p := range s.Include {
		words = append(words, "--include "+p)
	}
	for _, p := range s.Exclude {
		words = append(words, "--exclude "+p)
	}
	return strings.Join(words, " ")
}

// Takes reports whether a clean selection takes a file.
func (s Selection) Takes(name string) bool {
	matches := func(pattern string) bool { return Match(pattern, name) }
	return (len(s.Include) == 0 || slices.ContainsFunc(s.Include, matches)) && !slices.ContainsFunc(s.Exclude, matches)
}

// Match reports whether a pattern matches a name, by the rules of Python's fnmatch.fnmatchcase,
// which the hub's client uses (https://docs.python.org/3/library/fnmatch.html): * matches any
// text, including slashes; ? matches one character; [abc], [a-z] and [!a-z] match one of a set.
// Nothing else is special: no {a,b}, no **, no backslash.
func Match(pattern, name string) bool {
	p, n := []rune(pattern), []rune(name)
	at, star, from := 0, -1, 0 // of the last *: what follows it, and where in the name that was tried
	i := 0
	for i < len(n) {
		if at < len(p) && p[at] == '*' {
			at++
			star, from = at, i
			continue
		}
		if width := one(p[at:], n[i]); width > 0 {
			at += width
			i++
			continue
		}
		if star < 0 {
			return false
		}
		from++
		at, i = star, from
	}
	for at < len(p) && p[at] == '*' {
		at++
	}
	return at == len(p)
}

// one matches a character with the beginning of a pattern that does not begin with *. It returns
// the length of that part of the pattern; 0: it does not match.
func one(p []rune, c rune) (width int) {
	if len(p) == 0 || p[0] == '*' {
		return 0
	}
	if p[0] == '[' {
		if set, width := setOf(p); width > 0 {
			if set.has(c) {
				return width
			}
			return 0
		}
	}
	if p[0] == '?' || p[0] == c {
		return 1
	}
	return 0
}

// set is the content of the brackets in [abc], [a-z] or [!a-z].
type set []rune

// setOf reads a set at the beginning of a pattern. If the bracket is not closed, width is 0 and
// the bracket means itself. A closing bracket at the first place of a set belongs to the set.
func setOf(p []rune) (s set, width int) {
	first := 1
	if len(p) > 1 && p[1] == '!' {
		first = 2
	}
	end := slices.Index(p[min(first+1, len(p)):], ']')
	if end < 0 {
		return nil, 0
	}
	end += first + 1
	return p[1:end], end + 1
}

func (s set) has(c rune) bool {
	not := s[0] == '!'
	if not {
		s = s[1:]
	}
	for i := 0; i < len(s); i++ {
		low, high := s[i], s[i]
		if i+2 < len(s) && s[i+1] == '-' {
			high = s[i+2]
			i += 2
		}
		if low <= c && c <= high {
			return !not
		}
	}
	return not
}
