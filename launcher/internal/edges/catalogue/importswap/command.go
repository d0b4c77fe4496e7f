package importswap

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kballard/go-shellquote"

	"hotseat.dev/hotseat/launcher/internal/edges/catalogue"
)

// wrapper is llama-swap's program around vLLM.
const wrapper = "vllm-wrapper"

// ours are options that the launcher gives engines itself, with the number of their values.
var ours = map[string]map[string]int{
	"llamacpp": {
		"--host": 1, "--port": 1, "--alias": 1, "-a": 1, "--slot-save-path": 1, "--sleep-idle-seconds": 1, "--api-prefix": 1, "--path": 1,
		"--ssl-key-file": 1, "--ssl-cert-file": 1, "--reuse-port": 0, "--no-webui": 0, "--no-ui": 0, "--models-dir": 1, "--models-max": 1,
	},
	"vllm": {"--host": 1, "--port": 1, "--uds": 1, "--enable-sleep-mode": 0, "--ssl-keyfile": 1, "--ssl-certfile": 1},
}

// command reads the command line of a model, and says which engine it is. It reports
// whether the model sleeps, rather than ends, when it is not used.
func (im *importer) command(where string, m *catalogue.Model, cmd string) (sleeps bool) {
	words, err := shellquote.Split(cmd)
	if err != nil {
		im.note(where+".cmd", "the command cannot be split into words: %v", err)
		return false
	}
	if len(words) > 1 && path.Base(words[0]) == wrapper && words[1] == "serve" {
		behind := slices.Index(words, "--") + 1
		if behind == 0 {
			im.note(where+".cmd", "the command that vllm-wrapper runs is not behind --")
			return false
		}
		words, sleeps = words[behind:], true
	}
	var args []string
	switch {
	case len(words) == 0:
		return false
	case strings.HasPrefix(path.Base(words[0]), "llama-server"): // some are named with their build
		m.Engine, args, sleeps = "llamacpp", words[1:], true
	case path.Base(words[0]) == "vllm" && len(words) > 1 && words[1] == "serve":
		m.Engine, args = "vllm", words[2:]
	case strings.HasPrefix(path.Base(words[0]), "python") && len(words) > 2 && words[1] == "-m" && words[2] == "vllm.entrypoints.openai.api_server":
		m.Engine, args = "vllm", words[3:]
	default:
		return false
	}
	if words[0] != "llama-server" && words[0] != "vllm" {
		im.note(where+".cmd", "%s is left out: the launcher's settings say which program it runs", words[0])
	}
	m.Args = im.arguments(where+".cmd", m.Engine, args)
	return sleeps
}

// arguments leaves out what the launcher gives itself.
func (im *importer) arguments(where, engine string, args []string) []string {
	var kept, dropped []string
	for i := 0; i < len(args); i++ {
		option, _, together := strings.Cut(args[i], "=")
		values, drop := ours[engine][option]
		if !drop {
			im.checkMacros(where, args[i])
			kept = append(kept, args[i])
			continue
		}
		if option != "--host" && option != "--port" {
			dropped = append(dropped, option)
		}
		if !together {
			i += values
		}
	}
	if len(dropped) > 0 {
		im.note(where, "left out %s: the launcher gives such options itself", strings.Join(dropped, ", "))
	}
	return kept
}

// withoutComments drops the lines of a command that are comments, and joins the others.
func withoutComments(cmd string) string {
	var kept []string
	for line := range strings.Lines(cmd) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "#") {
			kept = append(kept, strings.TrimSuffix(line, "\\"))
		}
	}
	return strings.Join(kept, " ")
}

// wrapperLevel is the level at which vllm-wrapper puts a model to sleep; 0 if the command
// is another one.
func wrapperLevel(cmdStop string) int {
	words, err := shellquote.Split(withoutComments(cmdStop))
	if err != nil || len(words) < 2 || path.Base(words[0]) != wrapper || words[1] != "sleep" {
		return 0
	}
	for i, word := range words {
		option, value, together := strings.Cut(word, "=")
		if option != "--sleep-level" {
			continue
		}
		if !together && i+1 < len(words) {
			value = words[i+1]
		}
		if level, err := strconv.Atoi(value); err == nil && level == 2 {
			return level
		}
	}
	return 1
}
