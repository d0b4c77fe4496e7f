package engine

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Running reads the arguments and the environment of a process that was started
// with the Argv or SocketArgv and the environment of a Plan.
func (*LlamaCpp) Running(argv, env []string) (Running, error) {
	n := slices.Index(argv, "--model")
	if n < 0 || isCommand(env) {
		return Running{}, errNoLlama
	}
	own := argv[n:]
	if len(own) < 7 || own[2] != "--alias" || own[4] != "--host" {
		return Running{}, errNoLlama
	}
	r := Running{Model: own[1], Socket: own[5], KeepAlive: llamaKeepAlive, Devices: visibleDevices(env)}
	rest := own[6:]
	if rest[0] == "--port" && len(rest) > 1 {
		port, err := strconv.Atoi(rest[1])
		if err != nil {
			return r, fmt.Errorf("cannot read the port of an engine: %w", err)
		}
		r.Socket, r.Port, rest = "", port, rest[2:]
	}
	ours := slices.Index(rest, "--metrics") // the last argument of the launcher
	if rest[0] != "--slots" || ours < 0 {
		return r, errNoLlama
	}
	rest = rest[ours+1:]
	r.Args = slices.Concat([]string{"--model", own[1], "--alias", own[3]}, rest)
	line, err := readLlamaLine(r.Args, "")
	if err != nil {
		return r, err
	}
	if r.APIKey, err = llamaKey(line.llamaSettings, env); err != nil {
		r.ConfigGone = true // the engine has read its file of keys, which is gone
	}
	r.ServedNames = line.aliases
	r.DeviceMemory = line.memory(own[1], max(len(r.Devices), 1))
	return r, nil
}

var errNoLlama = errors.New("the arguments are not those of an engine of llama.cpp")

// names is how aliases are written in one argument.
func names(aliases []string) string { return strings.Join(aliases, ",") }
