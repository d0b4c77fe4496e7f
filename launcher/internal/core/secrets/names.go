package secrets

import (
	"slices"
	"strings"
	"unicode"
)

// IsName reports whether the name of a variable, a flag or a JSON key says that its value
// is a secret. It decides by the words of the name. In doubt a value counts as a secret:
// to hide a harmless value does less harm than to show a secret.
func IsName(name string) bool {
	words := wordsOf(name)
	if slices.Equal(words, []string{"key"}) {
		return false // mostly the key of a map
	}
	for n, word := range words {
		if secretWord(word, words[:n], words[n+1:]) {
			return true
		}
	}
	return false
}

// secretWord reports whether a word of a name says that the value is a secret. before and
// after are the words beside it.
func secretWord(word string, before, after []string) bool {
	last, previous, next := len(after) == 0, end(before), start(after)
	if slices.Contains(whereabouts, end(after)) {
		return false // API_KEY_FILE is the place of a secret
	}
	switch {
	case word == "credentials" && previous == "allow": // a header's name, of CORS
		return false
	case slices.ContainsFunc(always, func(part string) bool { return strings.Contains(word, part) }):
		return word != "secretary"
	case slices.Contains(alone, word):
		return true
	case word == "tokens", word == "keys": // counts and lists of names, mostly
		return slices.Contains(holders, previous)
	case strings.HasSuffix(word, "token"):
		return !slices.Contains(beforeToken, previous) && !slices.Contains(afterToken, next)
	case word == "key":
		return !slices.Contains(beforeKey, previous) && !slices.Contains(afterKey, next)
	case word == "pass":
		return last && !slices.Contains(beforePass, previous)
	case word == "pwd": // $PWD is the working folder
		return len(before) > 0 && previous != "old"
	case word == "headers": // OTEL_EXPORTER_OTLP_HEADERS
		return slices.Contains(before, "otlp")
	case word == "auth":
		return last && !slices.Contains(beforeAuth, previous)
	}
	return false
}

// The words by which IsName decides.
var (
	// always are parts of words that mean a secret.
	always = []string{
		"secret", "password", "passwd", "passphrase", "credential", "apikey", "authkey", "accesskey", "privatekey", "secretkey", "authorization",
	}
	// alone are whole words that mean a secret.
	alone = []string{"pat", "bearer", "jwt", "cookie"}
	// holders stand before tokens and keys that are secrets.
	holders = []string{"api", "auth", "access", "bearer", "refresh", "session", "secret", "private", "signing", "encryption", "ssh", "service", "admin", "hf", "github"}

	// Words that mean that a value is no secret.
	whereabouts = []string{"file", "path", "dir", "folder", "name", "names"}
	beforeToken = []string{
		"num", "n", "max", "min", "per", "cost", "time", "first", "next", "last", "begin", "start", "stop", "end", "eos", "bos", "pad", "unk", "sep", "cls", "mask",
		"fim", "eot", "special", "image", "video", "audio", "vision", "media", "patch", "prompt", "input", "output", "draft", "spec", "think", "newline",
	}
	afterToken = []string{
		"id", "ids", "type", "types", "index", "indices", "position", "positions", "pattern", "length", "len", "size", "count", "counts", "limit", "limits",
		"budget", "rate", "time", "times", "delay", "latency", "ms", "us", "ns", "seconds", "per", "threshold", "step", "steps", "ttl", "expiry",
		"embedding", "embeddings", "bucket", "buckets", "ratio", "usage", "healing", "parallel", "in", "out",
	}
	beforeKey = []string{
		"public", "primary", "foreign", "partition", "sort", "cache", "hash", "routing", "shard", "group", "query", "lookup", "index", "map", "dict", "json", "kv", "num",
	}
	afterKey = []string{
		"value", "values", "space", "cache", "size", "length", "len", "dim", "dims", "dtype", "type", "types", "head", "heads", "norm", "proj",
		"layer", "layers", "prefix", "suffix", "format", "count", "num", "scale", "order", "bits", "states", "weight", "weights", "bias",
	}
	beforePass = []string{"num", "n", "max", "min", "per", "single", "one", "two", "multi", "first", "second", "last", "next", "forward", "backward", "low", "high", "band", "by"}
	beforeAuth = []string{"enable", "disable", "use", "require", "skip", "no", "with", "without"}
)

// wordsOf splits a name into lower-case words, at characters that are neither letters nor
// digits, and before a capital that begins a word. It leaves out numbers.
func wordsOf(name string) []string {
	var words []string
	for _, part := range strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		letters, begin := []rune(part), 0
		for n := 1; n <= len(letters); n++ {
			if n == len(letters) || beginsWord(letters, n) {
				if word := strings.TrimRight(strings.ToLower(string(letters[begin:n])), "0123456789"); word != "" {
					words = append(words, word)
				}
				begin = n
			}
		}
	}
	return words
}

// beginsWord reports whether a capital begins a word: the K of apiKey and of APIKey does,
// the K of APIKEY does not.
func beginsWord(letters []rune, n int) bool {
	if !unicode.IsUpper(letters[n]) {
		return false
	}
	return !unicode.IsUpper(letters[n-1]) || n+1 < len(letters) && unicode.IsLower(letters[n+1])
}

func start(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return words[0]
}

func end(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}
