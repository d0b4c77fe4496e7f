package engine

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// llamaSettings are what the launcher reads from the arguments of llama-server.
type llamaSettings struct {
	model   string
	pick    string // of --hf-file: which file of the model; empty: its only one
	aliases []string
	host    string
	port    int
	context int      // tokens; 0: as many as the model can
	devices string   // of --device
	files   []string // other files of weights
	keys    []string // of --api-key
	keyFile string
}

// llamaReaders are the flags that the launcher reads.
var llamaReaders = map[string]func(s *llamaSettings, it llamaItem) error{
	"--model":        llamaText(func(s *llamaSettings, v string) { s.model = v }),
	"--hf-file":      llamaText(func(s *llamaSettings, v string) { s.pick = v }),
	"--alias":        llamaText(func(s *llamaSettings, v string) { s.aliases = commaSeparated(v) }),
	"--host":         llamaText(func(s *llamaSettings, v string) { s.host = v }),
	"--port":         llamaNumber(0, 65535, func(s *llamaSettings, n int) { s.port = n }),
	"--ctx-size":     llamaNumber(0, 1<<31-1, func(s *llamaSettings, n int) { s.context = n }),
	"--device":       llamaText(func(s *llamaSettings, v string) { s.devices = v }),
	"--mmproj":       llamaText(func(s *llamaSettings, v string) { s.files = append(s.files, v) }),
	"--model-draft":  llamaText(func(s *llamaSettings, v string) { s.files = append(s.files, v) }),
	"--api-key":      llamaText(func(s *llamaSettings, v string) { s.keys = append(s.keys, commaSeparated(v)...) }),
	"--api-key-file": llamaText(func(s *llamaSettings, v string) { s.keyFile = v }),
}

// sameAsReader are other long names of flags that the launcher reads.
var sameAsReader = map[string]string{"--spec-draft-model": "--model-draft"}

func llamaText(set func(*llamaSettings, string)) func(*llamaSettings, llamaItem) error {
	return func(s *llamaSettings, it llamaItem) error {
		set(s, it.values[0])
		return nil
	}
}

func llamaNumber(least, most int, set func(*llamaSettings, int)) func(*llamaSettings, llamaItem) error {
	return func(s *llamaSettings, it llamaItem) error {
		n, err := strconv.Atoi(strings.TrimSpace(it.values[0]))
		if err != nil || n < least || n > most {
			return inputError("", it.name, "%s must be a whole number from %d to %d, not %q", it.name, least, most, it.values[0])
		}
		set(s, n)
		return nil
	}
}

// commaSeparated splits a list as llama-server does, without its empty parts.
func commaSeparated(list string) []string {
	return slices.DeleteFunc(strings.Split(list, ","), func(part string) bool { return part == "" })
}

const (
	ownSleep     = "llama-server would wake by itself for any request, and take a GPU that another instance may have; the launcher puts instances to sleep"
	otherPaths   = "it has the engine answer at other paths, so that nobody could say what the public port lets through"
	ownRouter    = "the launcher chooses which models run; make one instance for each"
	fromStore    = "llama-server would download a model by itself; pull it into the launcher's store, or give the path of a GGUF file with --model"
	ownTools     = "it has the engine act on the machine for its clients"
	ownSlots     = "the launcher saves and restores the engine's slots"
	endsAtOnce   = "it prints something and ends"
	hidesTheLog  = "the launcher explains the engine's failures by its log"
	readsAnyFile = "it lets clients read files of the machine"
)

// llamaRefused are the flags that cannot be used, with the reason.
var llamaRefused = map[string]string{
	"--sleep-idle-seconds": ownSleep,

	"--api-prefix":    otherPaths,
	"--path":          otherPaths,
	"--reuse-port":    "the launcher owns the engine's address",
	"--ssl-key-file":  noTLS,
	"--ssl-cert-file": noTLS,

	"--models-dir":         ownRouter,
	"--models-preset":      ownRouter,
	"--models-max":         ownRouter,
	"--models-autoload":    ownRouter,
	"--no-models-autoload": ownRouter,

	"--hf-repo":                  fromStore,
	"--hf-repo-draft":            fromStore,
	"--spec-draft-hf":            fromStore,
	"--model-url":                fromStore,
	"--mmproj-url":               fromStore,
	"--docker-repo":              fromStore,
	"--embd-gemma-default":       fromStore,
	"--fim-qwen-1.5b-default":    fromStore,
	"--fim-qwen-3b-default":      fromStore,
	"--fim-qwen-7b-default":      fromStore,
	"--fim-qwen-7b-spec":         fromStore,
	"--fim-qwen-14b-spec":        fromStore,
	"--fim-qwen-30b-default":     fromStore,
	"--gpt-oss-20b-default":      fromStore,
	"--gpt-oss-120b-default":     fromStore,
	"--vision-gemma-4b-default":  fromStore,
	"--vision-gemma-12b-default": fromStore,

	"--tools":              ownTools,
	"--tools-runtime":      ownTools,
	"--agent":              ownTools,
	"--mcp-servers-config": ownTools,
	"--mcp-servers-json":   ownTools,
	"--ui-mcp-proxy":       ownTools,
	"--webui-mcp-proxy":    ownTools,
	"--cors-proxy":         ownTools, // of another release
	"--media-path":         readsAnyFile,

	"--slots":          ownSlots,
	"--no-slots":       ownSlots,
	"--slot-save-path": ownSlots,

	"--help":            endsAtOnce,
	"--usage":           endsAtOnce,
	"--version":         endsAtOnce,
	"--cache-list":      endsAtOnce,
	"--completion-bash": endsAtOnce,
	"--list-devices":    endsAtOnce,
	"--log-disable":     hidesTheLog,
}

// llamaRefusedKinds are the beginnings of flags that cannot be used, for those of another release.
var llamaRefusedKinds = map[string]string{
	"--ssl-":    noTLS,
	"--models-": ownRouter,
	"--sleep-":  ownSleep,
}

// read takes one item into the settings.
func (s *llamaSettings) read(it llamaItem) error {
	name := it.name
	if same, ok := sameAsReader[name]; ok {
		name = same
	}
	if read, ok := llamaReaders[name]; ok && len(it.values) > 0 {
		return read(s, it)
	}
	if why := refusedByLlama(name); why != "" {
		return inputError("", name, "%s cannot be used: %s; leave it out", it.given, why)
	}
	return nil
}

// refusedByLlama says why a flag cannot be used; "": it can.
func refusedByLlama(name string) string {
	if why, ok := llamaRefused[name]; ok {
		return why
	}
	for _, kind := range slices.Sorted(maps.Keys(llamaRefusedKinds)) {
		if strings.HasPrefix(name, kind) {
			return llamaRefusedKinds[kind]
		}
	}
	return ""
}

// llamaVariables are the variables of llama-server that the launcher does not pass on, each with
// the flag that it stands for: those of the flags that cannot be used, and of those that the
// launcher reads.
var llamaVariables = func() map[string]string {
	variables := map[string]string{}
	for name, flag := range llamaFlags {
		_, read := llamaReaders[name]
		if flag.variable != "" && (read || refusedByLlama(name) != "") {
			variables[flag.variable] = name
		}
	}
	delete(variables, llamaKeyVariable) // which the launcher reads as well
	return variables
}()

const llamaKeyVariable = "LLAMA_API_KEY"
