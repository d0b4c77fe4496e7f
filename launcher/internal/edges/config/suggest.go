package config

import (
	"fmt"
	"slices"
	"strings"

	"hotseat.dev/hotseat/launcher/inference"
)

// suggest says what to use in place of a key: what replaces a setting that was removed, or
// the setting that the key was meant for. It returns an empty text if there is none.
func (r *fileReader) suggest(key string) string {
	if instead := Removed(key); instead != "" {
		return instead
	}
	best := NearestKey(key, slices.Concat(r.keys, CatalogueKeys))
	if best == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %s?", best)
}

// NearestKey is the key nearest to asked, if near enough to have been meant, and else
// empty. A name may be right in the wrong section.
func NearestKey(asked string, keys []string) string {
	asked = strings.ToLower(strings.ReplaceAll(asked, "-", "_"))
	return nearest(keys, 1+len(asked)/3, func(key string) int {
		distance := inference.EditDistance(asked, key)
		if _, inSection, cut := strings.Cut(key, "."); cut {
			distance = min(distance, inference.EditDistance(asked, inSection))
		}
		return distance
	})
}

// Nearest is the name nearest to asked, if that differs by two letters at most, and by
// no more than half of them; else empty.
func Nearest(asked string, names []string) string {
	return nearest(names, 1+min(2, len(asked)/2), func(name string) int {
		return inference.EditDistance(strings.ToLower(asked), strings.ToLower(name))
	})
}

// nearest is the name at the least distance, if that is less than limit; else empty.
func nearest(names []string, limit int, distance func(name string) int) string {
	best, least := "", limit
	for _, name := range names {
		if d := distance(name); d < least {
			best, least = name, d
		}
	}
	return best
}
