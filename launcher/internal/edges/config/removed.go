package config

import "strings"

// removed says what to use in place of settings that earlier releases had.
var removed = map[string]string{"model_gc_high_threshold": oneLimit, "model_gc_low_threshold": oneLimit}

const oneLimit = "set the storage limit of the store, and the model retention lru: unused models are then removed when a pull needs their room"

// Removed says what to use in place of a setting that an earlier release had. name is its
// key, its flag without dashes, or its variable without the prefix. The text is empty for
// any other name.
func Removed(name string) string {
	instead := removed[strings.ToLower(strings.ReplaceAll(name, "-", "_"))]
	if instead == "" {
		return ""
	}
	return "; an earlier release had it: " + instead
}
