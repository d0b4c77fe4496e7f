package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheHelpOfEachCommand(t *testing.T) {
	root := (&cli{}).rootCommand()
	commands := []string{""}
	for _, c := range root.Commands() {
		commands = append(commands, c.Name())
	}
	require.Subset(t, commands, []string{"serve", "init", "ps", "run", "swap", "sleep", "wake", "stop", "logs", "gpus", "doctor", "version", "chat", "wait", "get"})
	for _, name := range commands {
		t.Run("is what the file says: launcher "+name, func(t *testing.T) {
			r := call(t, append(strings.Fields(name), "--help")...)
			require.Equal(t, exitOK, r.code)
			require.Empty(t, r.err)
			require.Contains(t, r.out, "\nExamples:\n")
			golden(t, "help/"+"launcher"+strings.TrimRight("-"+name, "-"), r.out)
		})
	}
}

func TestWithoutACommandTheHelpIsShown(t *testing.T) {
	require.Equal(t, call(t, "--help"), call(t))
}

func TestInitShowsTheHelpOfServe(t *testing.T) {
	require.Contains(t, call(t, "init", "--", "serve", "--help").out, "--state-dir")
}

func TestVersionNamesTheBuild(t *testing.T) {
	r := call(t, "version")
	require.Equal(t, exitOK, r.code)
	require.Regexp(t, `^launcher \S+ \(go\S+ linux/\w+\)\n$`, r.out)
}

func TestCompletionScriptsAreMadeForEveryShell(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		r := call(t, "completion", shell)
		require.Equal(t, exitOK, r.code)
		require.Contains(t, r.out, "__complete", shell)
	}
}

func TestMistakesOnTheCommandLineHaveExitCode2AndOneLine(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		says string
	}{
		"a command that does not exist names the nearest":     {"pss", "did you mean gpus or ps?"},
		"a command nothing like any other points to the help": {"frobnicate", "see: launcher --help"},
		"an unknown flag points to the help":                  {"ps --nope", "see: launcher ps --help"},
		"a flag in the plural that is none":                   {"run --gpus 0 -- m", "did you mean --gpu?"},
		"a flag in the singular that is none":                 {"serve --gpu simulated:2", "did you mean --gpus?"},
		"a flag of vllm's before the model":                   {"run --max-model-len 5 m", "options of vllm stand after the model; see: launcher run --help"},
		"a flag without its value":                            {"run --gpu", "see: launcher run --help"},
		"an argument too many":                                {"ps x", `"x" is one argument too many`},
		"a missing id":                                        {"wake", "ID is missing"},
		"a form that does not exist":                          {"ps -o yaml", "it is table, wide or json"},
		"run without a model":                                 {"run --gpu 0", "the model is missing"},
		"run with a variable that is not there":               {"run --env HOTSEAT_NO_SUCH -- m", "no such variable"},
		"run with a variable without a name":                  {"run --env =x -- m", "has no name"},
		"run that waits and does not":                         {"run --wait --no-wait m", "do not go together"},
		"run with a flag after the model":                     {"run m --gpu 0", "--gpu stands after the model, where flags are the engine's, and it is a flag of launcher run: put it before the model"},
		"run with a flag after the model and a dash":          {"run --id a -- m --wait=true", "--wait stands after the model"},
		"swap of a new one without GPUs":                      {"swap -- m", "--gpu is missing; name the GPUs to swap on: launcher swap --gpu 0 -- m"},
		"a start method that does not exist":                  {"run --start-method quick m", `--start-method is auto, exec or fork, not "quick"`},
		"a model cache that does not exist":                   {"swap --gpu 0 --model-cache yes -- m", `--model-cache is auto, require or off, not "yes"`},
		"logs of fewer than no lines":                         {"logs --tail -5 a", "--tail is a number of lines, or -1 for all, not -5"},
		"wait for a state that does not exist":                {"wait --for dead a", `--for is awake, asleep or stopped, not "dead"`},
		"wait for nobody":                                     {"wait", "ID is missing"},
		"chat with nobody":                                    {"chat", "ID is missing"},
		"chat with a key file that is not there":              {"chat --api-key-file /no/such/key a -- x", "--api-key-file names its file"},
		"a model of the hub without its scheme":               {"pull Qwen/Qwen3-0.6B", "did you mean hf://Qwen/Qwen3-0.6B?"},
		"a folder without its scheme":                         {"pull /models/m", "did you mean file:///models/m?"},
		"something else that is no address":                   {"pull ./m", "did you mean hf://org/name, https://host/path or file:///folder?"},
		"a connection flag of a command that has none":        {"models --server x", "unknown flag: --server"},
		"swap with nothing to do":                             {"swap", "ID is missing; name an instance to wake"},
		"swap of two at once":                                 {"swap a b", `"b" is one argument too many`},
		"swap of an old and a new one":                        {"swap a -- m", "give one of them"},
		"swap with an empty command line":                     {"swap --gpu 0 --", "the model is missing"},
		"swap with an id for one that exists":                 {"swap --id b a", "are for a new instance"},
		"swap with a start method for one that exists":        {"swap --start-method exec a", "are for a new instance"},
		"swap out in a way that does not exist":               {"swap --out away a", "sleep or stop"},
		"swap at a level that does not exist":                 {"swap --level 3 a", "does not exist"},
		"swap with a negative timeout":                        {"swap --timeout -1s a", "negative"},
		"swap with a timeout that is none":                    {"swap --timeout soon a", "1m30s"},
		"sleep at a level that does not exist":                {"sleep --level 0 a", "does not exist"},
		"stop of nobody":                                      {"stop", "--all"},
		"stop of all and one":                                 {"stop --all a", "do not go together"},
		"init of something that is not serve":                 {"init -- ps", "launcher init -- serve"},
		"init with nothing":                                   {"init", "launcher init -- serve"},
		"init with an unknown flag of serve":                  {"init -- serve --nope", "see: launcher serve --help"},
		"init with a wrong setting":                           {"init -- serve --on-exit sing", "--on-exit: must be one of stop, leave"},
		"serve with an unknown flag":                          {"serve --nope", "see: launcher serve --help"},
		"serve with a flag of an earlier release":             {"serve --model-gc-low-threshold 70", "an earlier release had it: set the storage limit of the store"},
		"pull with a flag of an earlier release":              {"pull --pin=false hf://a/b", "keep it by: launcher models keep MODEL"},
		"serve with an argument":                              {"serve x", "too many"},
		"serve with a wrong setting names the flag":           {"serve --cgroups v3", "--cgroups: must be one of auto, v2, v1, none"},
		"serve with a negative duration":                      {"serve --drain-timeout=-1s", "--drain-timeout"},
		"serve with a file that is not there":                 {"serve --config /no/such/file.yaml", "/no/such/file.yaml"},
		"serve on a public address without a token":           {"serve --listen 0.0.0.0:0", "--insecure-public"},
		"serve with a program that is not there":              {"serve --vllm /no/such/vllm", "--vllm: exec: \"/no/such/vllm\""},
		"doctor with a wrong setting":                         {"doctor --listen nowhere", "--listen"},
		"a token file that is not there":                      {"ps --token-file /no/such/token", "--token-file names its file"},
		"a server that is no address":                         {"ps --server http://", "--server takes an address"},
	} {
		t.Run(name, func(t *testing.T) {
			r := call(t, strings.Fields(c.line)...)
			require.Equal(t, exitUsage, r.code, r.err)
			require.Contains(t, r.err, c.says)
			require.Equal(t, 1, strings.Count(r.err, "\n"), r.err)
			require.True(t, strings.HasPrefix(r.err, "launcher: "), r.err)
			require.Empty(t, r.out)
		})
	}
}
