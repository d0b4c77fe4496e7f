package requester

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/spec/simgpu"
)

const (
	// envVisible is how NVIDIA's device plugin and container toolkit say which
	// GPUs a container has (device-id-strategy uuid, device-list-strategy envvar).
	envVisible = "NVIDIA_VISIBLE_DEVICES"
	// envNVMLLibrary gives NVML's path where the dynamic linker does not find it.
	envNVMLLibrary = "HOTSEAT_NVML_LIBRARY"
)

// errNobodyKnows says that there is nothing here that knows how much device
// memory is in use.
var errNobodyKnows = errors.New("cannot find out how much device memory is in use")

// accelerators are the GPUs that the Pod was given. Both methods ask anew and
// may be called from several goroutines.
type accelerators interface {
	uuids() ([]string, error)
	memory() (requesterapi.MemoryUsage, error)
}

// openAccelerators chooses who is asked. Only a wrong source is an error: what
// cannot be told is said to whoever asks, so that a person finds it in the Pod's
// status and not in a container that does not start.
func openAccelerators(source string, getenv func(string) string) (accelerators, error) {
	env := &fromEnv{visible: getenv(envVisible), simulated: getenv(simgpu.EnvDir), library: getenv(envNVMLLibrary)}
	driver := &fromNVML{library: env.library}
	switch source {
	case "env":
		return env, nil
	case "nvml":
		return driver, nil
	case "", "auto":
		return automatic(env, driver), nil
	default:
		return nil, fmt.Errorf("unknown source of GPUs %q: use auto, nvml or env", source)
	}
}

// automatic takes the environment where it names GPUs, and where it says that
// there are none or all of them: NVML would then claim GPUs of others.
func automatic(env *fromEnv, driver *fromNVML) accelerators {
	if _, err := env.uuids(); err == nil || env.visible == "all" || env.visible == "none" {
		return env
	}
	return &either{env: env, fromNVML: driver}
}

// either is NVML where the environment names no GPU.
type either struct {
	env *fromEnv
	*fromNVML
}

func (e *either) uuids() ([]string, error) {
	found, err := e.fromNVML.uuids()
	if err != nil {
		_, envErr := e.env.uuids()
		return nil, fmt.Errorf("%w; and %w", envErr, err)
	}
	return found, nil
}

// fromEnv reads the UUIDs from the environment. The memory in use comes from the
// folder of simulated GPUs where there is one, else from NVML.
type fromEnv struct{ visible, simulated, library string }

var (
	aUUID   = regexp.MustCompile(`^(GPU|MIG)-[A-Za-z0-9/-]+$`)
	anIndex = regexp.MustCompile(`^[0-9]+(:[0-9]+)?$`)
)

func (e *fromEnv) uuids() ([]string, error) {
	const right = "let the device plugin give UUIDs (device-id-strategy uuid, device-list-strategy envvar), such as GPU-5a1c…"
	switch e.visible {
	case "":
		return nil, fmt.Errorf("%s is not set: ask for a GPU in the container's limits, and %s", envVisible, right)
	case "all", "void", "none":
		return nil, fmt.Errorf("%s is %q, which names no GPU: ask for a GPU in the container's limits, and %s", envVisible, e.visible, right)
	}
	found := strings.Split(e.visible, ",")
	seen := map[string]bool{}
	for _, uuid := range found {
		switch {
		case anIndex.MatchString(uuid):
			return nil, fmt.Errorf("%s is %q: %s is an index, which means nothing outside this machine: %s", envVisible, e.visible, uuid, right)
		case !aUUID.MatchString(uuid):
			return nil, fmt.Errorf("%s is %q: %q is not the UUID of a GPU: %s", envVisible, e.visible, uuid, right)
		case seen[uuid]:
			return nil, fmt.Errorf("%s is %q: it has %s twice: give it once", envVisible, e.visible, uuid)
		}
		seen[uuid] = true
	}
	return found, nil
}

func (e *fromEnv) memory() (requesterapi.MemoryUsage, error) {
	uuids, err := e.uuids()
	if err != nil {
		return nil, failed(requesterapi.CodeNoAccelerators, "cannot find out which GPUs this Pod has: %v", err)
	}
	if e.simulated != "" {
		return simulatedMemory(e.simulated, uuids)
	}
	all, err := (&fromNVML{library: e.library}).memory()
	if err != nil {
		return nil, err
	}
	usage := requesterapi.MemoryUsage{}
	for _, uuid := range uuids {
		used, ok := all[uuid]
		if !ok {
			return nil, fmt.Errorf("NVML does not list GPU %s, which %s names", uuid, envVisible)
		}
		usage[uuid] = used
	}
	return usage, nil
}

// simulatedMemory counts what living processes hold.
func simulatedMemory(path string, uuids []string) (requesterapi.MemoryUsage, error) {
	dir, err := simgpu.Open(path)
	if err != nil {
		return nil, err
	}
	usage := requesterapi.MemoryUsage{}
	for _, uuid := range uuids {
		holders, err := dir.Holders(uuid)
		if err != nil {
			return nil, err
		}
		var bytes uint64
		for _, h := range holders {
			bytes += h.Bytes
		}
		usage[uuid] = mebibytes(bytes)
	}
	return usage, nil
}

func mebibytes(bytes uint64) int64 { return int64((bytes + 1<<20 - 1) >> 20) }
