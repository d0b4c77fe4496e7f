package engine

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// environment makes the environment of an engine, sorted by key, from the
// launcher's own variables, the user's, the GPU provider's, and decided, those that the
// launcher must decide; the later win. notes say which of the user's variables
// lost.
func environment(r Request, decided []string) (env, notes []string, err error) {
	vars := map[string]string{}
	for _, entry := range r.BaseEnv {
		if name, value, ok := strings.Cut(entry, "="); ok && inherited(name, value) {
			vars[name] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		if err := checkVariable(name, r.Env[name]); err != nil {
			return nil, nil, err
		}
		vars[name] = r.Env[name]
	}
	own := append(slices.Clone(r.ExtraEnv), decided...)
	if r.Rank != nil {
		own = append(own, r.Rank.Variables()...)
		for _, entry := range r.Rank.Defaults() {
			name, value, _ := strings.Cut(entry, "=")
			if _, set := vars[name]; !set {
				vars[name] = value
			}
		}
	}
	for _, entry := range own {
		name, value, _ := strings.Cut(entry, "=")
		if theirs, ok := r.Env[name]; ok && theirs != value {
			notes = append(notes, name+" of env_vars is overridden: the launcher sets it to "+value)
		}
		vars[name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	return env, notes, nil
}

// ownVariables are the variables that the launcher decides.
func ownVariables(gpus []GPU) []string {
	own := []string{"VLLM_SERVER_DEV_MODE=1"} // opens the sleep endpoints
	if len(gpus) == 0 {
		return own
	}
	return append(own, VisibleDevices(gpus)...)
}

// VisibleDevices are the variables by which an engine sees these GPUs alone. They go by their
// index in PCI bus order, since many releases of vLLM crash on UUIDs; a MIG device has only a
// UUID.
func VisibleDevices(gpus []GPU) []string {
	visible := make([]string, len(gpus))
	for i, gpu := range gpus {
		if visible[i] = strconv.Itoa(gpu.Index); gpu.MIG {
			visible[i] = gpu.UUID
		}
	}
	return []string{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=" + strings.Join(visible, ",")}
}

// socketFolder says where vLLM makes the sockets between its processes: the
// temporary folder, unless it is set (vllm/envs.py). It never removes them.
const socketFolder = "VLLM_RPC_BASE_PATH"

// DefaultKeepAlive is how long vLLM keeps an idle connection open unless
// VLLM_HTTP_TIMEOUT_KEEP_ALIVE says otherwise (vllm/envs.py).
const DefaultKeepAlive = 5 * time.Second

// keepAlive is how long vLLM keeps an idle connection open; negative: it
// closes each connection after its answer.
func keepAlive(env []string) time.Duration {
	seconds := int(DefaultKeepAlive / time.Second)
	if value, set := lookup(env, "VLLM_HTTP_TIMEOUT_KEEP_ALIVE"); set {
		if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
			seconds = n
		}
	}
	if seconds <= 0 {
		return -1
	}
	return time.Duration(min(seconds, math.MaxInt32)) * time.Second
}

const (
	launcherPrefix = "HOTSEAT_" // the launcher's settings and secrets
	simulatedGPUs  = "HOTSEAT_SIMGPU_DIR"
)

// inherited tells whether a variable of the launcher passes to engines.
func inherited(name, value string) bool {
	switch {
	case strings.HasPrefix(name, launcherPrefix):
		return name == simulatedGPUs
	case name == "VLLM_PORT":
		// Kubernetes sets VLLM_PORT to a URL for a Service called vllm, and vLLM
		// then refuses to start (vllm/envs.py).
		return !strings.Contains(value, "://")
	}
	return true
}

func checkVariable(name, value string) error {
	field := "env_vars." + name
	switch {
	case name == "" || strings.ContainsAny(name, "=\x00"):
		return inputError(field, "", "%q cannot be the name of an environment variable", name)
	case len(name)+len("=")+len(value) >= maxArgument:
		return inputError(field, "", "%s in env_vars has %d bytes; a variable must have fewer than %d", name, len(value), maxArgument)
	case strings.ContainsRune(value, 0):
		return inputError(field, "", "the value of %s in env_vars holds a zero byte", name)
	case name == "HOTSEAT_INSTANCE", name == "HOTSEAT_LAUNCHER":
		return inputError(field, "", "%s cannot be set: the launcher marks its own processes with it; leave it out", name)
	}
	return nil
}

func lookup(env []string, name string) (string, bool) {
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return "", false
}
