package engine

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
)

// Reading arguments as llama-server does. Its parser takes a word for a flag only if it is
// the whole name of one, and takes the words after it for its values, whatever they look like.
// It has no --flag=value and no arguments without a flag. Later flags win over earlier ones.

//go:embed llamacpp_flags.txt
var llamaFlagList string

// llamaFlag is a flag of llama-server.
type llamaFlag struct {
	name     string // the long name; of several that mean the same, the one of this spelling
	values   int    // how many it takes
	variable string // that sets it as well; "" for none
}

// llamaFlags are the flags of llama-server by each of their names.
var llamaFlags = parseLlamaFlags(llamaFlagList)

// parseLlamaFlags reads lines such as "1 LLAMA_ARG_CTX_SIZE -c --ctx-size". A short name
// means the long one that follows, or else the first.
func parseLlamaFlags(list string) map[string]llamaFlag {
	flags := map[string]llamaFlag{}
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] == "#" {
			continue
		}
		values, _ := strconv.Atoi(fields[0])
		names := fields[2:]
		for n, name := range names {
			long := func(name string) bool { return strings.HasPrefix(name, "--") }
			at := slices.IndexFunc(names[n:], long)
			if at < 0 {
				at = slices.IndexFunc(names, long) - n
			}
			flags[name] = llamaFlag{name: names[n+at], values: values, variable: strings.TrimPrefix(fields[1], "-")}
		}
	}
	return flags
}

// llamaItem is one flag with its values, or a word that is none of llama-server's flags.
type llamaItem struct {
	llamaFlag
	given  string   // the name as it was given
	values []string // the words after it
	raw    []string // the words as they were
}

// readLlamaItem reads the item at the start of words, which are not empty.
func readLlamaItem(words []string) (llamaItem, error) {
	given := words[0]
	flag, known := llamaFlags[llamaFlagName(given)]
	if !known {
		name, _, inline := strings.Cut(given, "=")
		if flag, ok := llamaFlags[llamaFlagName(name)]; ok && inline {
			return llamaItem{}, inputError("", flag.name, "llama-server takes no = after a flag: write %s and its value as two words", name)
		}
		return llamaItem{given: given, llamaFlag: llamaFlag{name: llamaFlagName(name)}, raw: words[:1]}, nil
	}
	it := llamaItem{llamaFlag: flag, given: given}
	if len(words) <= flag.values {
		return llamaItem{}, inputError("", flag.name, "%s needs a value", given)
	}
	it.values, it.raw = words[1:1+flag.values], words[:1+flag.values]
	for _, value := range it.values {
		if _, is := llamaFlags[llamaFlagName(value)]; is {
			return llamaItem{}, inputError("", flag.name, "%s needs a value, and %s is a flag", given, value)
		}
	}
	return it, nil
}

// llamaFlagName gives a long flag with dashes for underscores, as llama-server reads it.
func llamaFlagName(word string) string {
	if strings.HasPrefix(word, "--") {
		return strings.ReplaceAll(word, "_", "-")
	}
	return word
}
