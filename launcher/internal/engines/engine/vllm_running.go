package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher/internal/engines/rank"
)

// Running describes the engine that runs in a process, as the process tells.
type Running struct {
	Args        []string   // as a Request has them, without the launcher's own
	Socket      string     // the path of the Unix socket at which it listens; empty: at Port
	Port        int        // at which it listens on loopback; 0: at Socket, or nowhere, since it is a worker
	Rank        *rank.Rank // which rank of a server it is, without the group; nil: none
	Devices     []string   // the GPUs in CUDA_VISIBLE_DEVICES: indices, or UUIDs
	Model       string
	ServedNames []string
	APIKey      Secret

	// ConfigGone says that the content of a --config file is not known: the
	// engine's copy is gone, and with it a key that it may have held.
	ConfigGone bool

	// ConfigWords are as in the Plan.
	ConfigWords []string

	// DeviceMemory and KeepAlive are as in the Plan.
	DeviceMemory DeviceMemory
	KeepAlive    time.Duration
}

// Running reads the arguments and the environment of a process that was started
// with the Argv, SocketArgv or WorkerArgv and the environment of a Plan.
func (*VLLM) Running(argv, env []string) (Running, error) {
	if isCommand(env) { // its program may be vLLM
		return Running{}, errNoVLLM
	}
	for n := range argv {
		own := argv[n:]
		switch {
		case len(own) > 2 && own[0] == "serve" && own[2] == headless:
			return readRunning(Running{Model: own[1]}, own[3:], env)
		case len(own) > 3 && own[0] == "serve" && own[2] == "--uds":
			return readRunning(Running{Model: own[1], Socket: own[3]}, own[4:], env)
		case len(own) > 5 && own[0] == "serve" && own[2] == "--host" && own[4] == "--port":
			port, err := strconv.Atoi(own[5])
			if err != nil {
				return Running{Model: own[1]}, fmt.Errorf("cannot read the port of an engine: %w", err)
			}
			return readRunning(Running{Model: own[1], Port: port}, own[6:], env)
		}
	}
	return Running{}, errNoVLLM
}

var errNoVLLM = errors.New("the arguments are not those of vllm serve")

// readRunning reads the rest of the arguments, after the model and the address.
func readRunning(r Running, rest, env []string) (Running, error) {
	model := r.Model
	if is, others, ok := rank.FromArguments(rest); ok {
		r.Rank, rest = &is, others
	}
	r.Args = append([]string{model}, rest...)
	r.KeepAlive = keepAlive(env)
	r.Args, r.ConfigGone = withoutGoneConfig(r.Args)
	line, err := readCommandLine(slices.Clone(r.Args), "", r.Rank)
	if err != nil {
		return r, err
	}
	r.ServedNames, r.DeviceMemory = line.settings.servedNames, DeviceMemory{Share: line.settings.utilization}
	if len(r.ServedNames) == 0 {
		r.ServedNames = []string{model}
	}
	r.ConfigWords = line.configWords
	r.APIKey = apiKey(line.settings.apiKeys, env)
	r.Devices = visibleDevices(env)
	return r, nil
}

// visibleDevices are the GPUs that VisibleDevices named.
func visibleDevices(env []string) []string {
	if devices, _ := lookup(env, "CUDA_VISIBLE_DEVICES"); devices != "" {
		return strings.Split(devices, ",")
	}
	return nil
}

// withoutGoneConfig leaves --config out of the arguments of a Plan when its file
// is gone.
func withoutGoneConfig(args []string) (rest []string, gone bool) {
	n := slices.Index(args, "--config")
	if n < 0 || n+1 == len(args) {
		return args, false
	}
	if _, err := os.Stat(args[n+1]); !errors.Is(err, fs.ErrNotExist) {
		return args, false
	}
	return slices.Delete(slices.Clone(args), n, n+2), true
}
