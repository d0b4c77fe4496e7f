package config

import (
	"fmt"
	"strings"
)

// suggest names the setting that the key was meant for, when there is one.
func (r *fileReader) suggest(key string) string {
	best := nearest(key, r.keys)
	if best == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %s?", best)
}

// nearest is the key nearest to asked, if near enough to have been meant, and else
// empty.
func nearest(asked string, keys []string) string {
	asked = strings.ToLower(strings.ReplaceAll(asked, "-", "_"))
	best, least := "", 1+len(asked)/3
	for _, known := range keys {
		// A name can also be right, in the wrong section.
		_, inSection, _ := strings.Cut(known, ".")
		distance := editDistance(asked, known)
		if inSection != "" {
			distance = min(distance, editDistance(asked, inSection))
		}
		if distance < least {
			best, least = known, distance
		}
	}
	return best
}

// editDistance is how many bytes must be put in, taken out or changed to make b
// of a (Levenshtein's distance).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
