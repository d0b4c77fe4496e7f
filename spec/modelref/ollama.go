package modelref

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// OllamaScheme begins the addresses of models of Ollama's registry.
const OllamaScheme = "ollama://"

// The registry and the namespace of names without them, as Ollama completes names
// (types/model/name.go of github.com/ollama/ollama).
const (
	ollamaRegistry  = "registry.ollama.ai"
	ollamaNamespace = "library"
)

// Ollama is a model of Ollama's registry, or of another registry in the same form.
type Ollama struct {
	Registry   string // host, or host:port
	Repository string // namespace/name
	Tag        string
}

var ollamaName = regexp.MustCompile(`^(?:(?:([a-zA-Z0-9.-]+(?::[0-9]+)?)/)?(\w[\w.-]*)/)?(\w[\w.-]*):(\w[\w.-]*)$`)

// ParseOllama reads an address: ollama://name:tag, ollama://namespace/name:tag or
// ollama://registry/namespace/name:tag. Without a tag, it is latest. A text that is no such
// address gives the zero value.
func ParseOllama(uri string) Ollama {
	parts := ollamaName.FindStringSubmatch(strings.TrimPrefix(Address(uri), OllamaScheme))
	if parts == nil || !strings.HasPrefix(uri, OllamaScheme) {
		return Ollama{}
	}
	return Ollama{Registry: cmp.Or(parts[1], ollamaRegistry), Repository: cmp.Or(parts[2], ollamaNamespace) + "/" + parts[3], Tag: parts[4]}
}

// IsValid reports whether it names a model.
func (o Ollama) IsValid() bool { return o.Tag != "" }

// NoOllama returns why ParseOllama does not read an address, for people.
func NoOllama(uri string) string {
	return fmt.Sprintf("the address %q names no model of Ollama's registry; write it as ollama://name:tag, ollama://namespace/name:tag or ollama://registry/namespace/name:tag", uri)
}
