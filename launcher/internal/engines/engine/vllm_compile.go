package engine

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// What vLLM compiles when it starts follows from the model, from nearly any argument, and
// from the GPUs (compute_hash of VllmConfig, in vllm/config/vllm.py of 0.30.0). Here it
// is enough to be right about two starts with the same arguments.

// noCompilation is vLLM's CompilationMode.NONE, by number and by name
// (vllm/config/compilation.py).
var noCompilation = []string{"0", "none"}

// uncompiled are flags that tell of clients, and not of the model.
var uncompiled = []string{"", "--model", "--host", "--port", "--config", "--served-model-name", "--api-key"}

// noteCompiled notes what an item of the arguments says about what is compiled.
func (l *commandLine) noteCompiled(it item) {
	if slices.Contains(uncompiled, it.flag) {
		return
	}
	l.compiled = append(l.compiled, it.raw...)
	switch it.flag {
	case "--enforce-eager":
		l.settings.eager = true
	case "--no-enforce-eager":
		l.settings.eager = false
	case "--optimization-level":
		l.settings.unoptimized = !it.dotted && slices.Equal(it.values, []string{"0"})
	case "--compilation-config":
		if mode, said := compilationMode(it); said {
			l.settings.uncompiled = slices.Contains(noCompilation, strings.ToLower(mode))
		}
	}
}

// compilationMode reads the mode of --compilation-config, which may be given as JSON, as
// a number, or as --compilation-config.mode; before 0.11 it was called level.
func compilationMode(it item) (mode string, said bool) {
	if len(it.values) != 1 {
		return "", false
	}
	value := it.values[0]
	if it.dotted {
		key, _, _ := strings.Cut(it.raw[0], "=")
		return value, strings.HasSuffix(key, ".mode") || strings.HasSuffix(key, ".level")
	}
	if _, err := strconv.Atoi(value); err == nil {
		return value, true
	}
	var given struct{ Mode, Level json.RawMessage }
	if json.Unmarshal([]byte(value), &given) != nil {
		return "", false
	}
	for _, raw := range []json.RawMessage{given.Mode, given.Level} {
		if len(raw) > 0 {
			return strings.Trim(string(raw), `"`), true
		}
	}
	return "", false
}

// compiles is the Plan's text. It is empty for a rank too. A rank waits for the others of its
// server: if it also waited for an instance that compiles the same, that one could wait for it.
func (l *commandLine) compiles() string {
	s := &l.settings
	if s.eager || s.unoptimized || s.uncompiled || s.ranked {
		return ""
	}
	return strings.Join(append([]string{s.model, s.revision}, l.compiled...), "\x00")
}
