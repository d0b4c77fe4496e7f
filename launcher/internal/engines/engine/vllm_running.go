package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Running describes the engine that runs in a process, as the process tells.
type Running struct {
	Args        []string // as a Request has them, without the launcher's own
	Port        int      // at which it listens on loopback
	Devices     []string // the GPUs in CUDA_VISIBLE_DEVICES: indices, or UUIDs
	Model       string
	ServedNames []string
	APIKey      Secret

	// ConfigGone says that the content of a --config file is not known: the
	// engine's copy is gone, and with it a key that it may have held.
	ConfigGone bool

	// ConfigWords are as in the Plan.
	ConfigWords []string

	// GPUMemoryUtilization is as in the Plan.
	GPUMemoryUtilization float64
}

// Running reads the arguments and the environment of a process that was started
// with the Argv and the Env of a Plan.
func (*VLLM) Running(argv, env []string) (Running, error) {
	for n := range argv {
		if own := argv[n:]; len(own) > 5 && own[0] == "serve" && own[2] == "--host" && own[4] == "--port" {
			return readRunning(own[1], own[5], own[6:], env)
		}
	}
	return Running{}, errors.New("the arguments are not those of vllm serve")
}

func readRunning(model, port string, rest, env []string) (Running, error) {
	r := Running{Model: model, Args: append([]string{model}, rest...)}
	var err error
	if r.Port, err = strconv.Atoi(port); err != nil {
		return r, fmt.Errorf("cannot read the port of an engine: %w", err)
	}
	r.Args, r.ConfigGone = withoutGoneConfig(r.Args)
	line, err := readCommandLine(slices.Clone(r.Args), "")
	if err != nil {
		return r, err
	}
	r.ServedNames, r.GPUMemoryUtilization = line.settings.servedNames, line.settings.utilization
	if len(r.ServedNames) == 0 {
		r.ServedNames = []string{model}
	}
	r.ConfigWords = line.configWords
	r.APIKey = apiKey(line.settings.apiKeys, env)
	if devices, _ := lookup(env, "CUDA_VISIBLE_DEVICES"); devices != "" {
		r.Devices = strings.Split(devices, ",")
	}
	return r, nil
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
