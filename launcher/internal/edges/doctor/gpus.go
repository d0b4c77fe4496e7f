package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/preload"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
)

// gpuFacts is what the driver says of the machine's GPUs.
type gpuFacts struct {
	source  string // as configured
	devices []deviceFacts
	err     error // why the driver, or the file, cannot be asked
}

type deviceFacts struct {
	gpu.Device
	health gpu.Health
	memory gpu.Memory
	err    error // why its memory cannot be read
}

// real says whether there are GPUs of the machine's own.
func (f gpuFacts) real() bool { return !f.simulated() && len(f.devices) > 0 }

// kinds are the kinds of GPU for which the launcher keeps preloaders.
func (f gpuFacts) kinds() []string {
	devices := make([]gpu.Device, len(f.devices))
	for n, d := range f.devices {
		devices[n] = d.Device
	}
	return preload.Kinds(devices)
}

// simulated says whether the configuration asks for GPUs that are not there.
func (f gpuFacts) simulated() bool {
	return strings.HasPrefix(f.source, "simulated") || strings.HasPrefix(f.source, "file:")
}

// findGPUs asks the driver. It is not asked where GPUs are simulated; those
// are not opened either, since that would make their folder.
func findGPUs(source string, visible []string) gpuFacts {
	facts := gpuFacts{source: source}
	if facts.simulated() {
		return facts
	}
	provider, err := gpu.Open(gpu.Options{Source: "nvml", Visible: visible})
	if err != nil {
		facts.err = err
		return facts
	}
	defer provider.Close()
	for _, d := range provider.Devices() {
		found := deviceFacts{Device: d, health: provider.Health(d.UUID)}
		found.memory, found.err = provider.Memory(d.UUID)
		facts.devices = append(facts.devices, found)
	}
	return facts
}

func checkDriver(_ context.Context, e *examination) []Result {
	return one(judgeDriver(e.gpus, driverVersion(e.proc)))
}

// judgeDriver: no driver is a failure only where GPUs are asked for by name of
// the driver; otherwise they are simulated.
func judgeDriver(facts gpuFacts, version string) Result {
	r := Result{Name: "driver", Status: OK}
	switch {
	case facts.simulated():
		r.Finding = fmt.Sprintf("NVML is not used, since --gpus is %s", facts.source)
	case facts.err == nil:
		r.Finding = fmt.Sprintf("NVML found %d GPUs; driver %s", len(facts.devices), version)
	case errors.Is(facts.err, gpu.ErrSilent):
		r.Status, r.Finding = Fail, facts.err.Error()
	case facts.source == "nvml":
		r.Status, r.Finding = Fail, facts.err.Error()
		r.Remedy = "install the NVIDIA driver; in a container, make it visible with the NVIDIA container toolkit"
	default:
		r.Status, r.Finding = Warn, fmt.Sprintf("found no GPUs, so the launcher will simulate them: %v", facts.err)
		r.Remedy = "if this machine has a GPU, install the NVIDIA driver and start with --gpus nvml"
	}
	return r
}

// driverVersion reads the version of the kernel's driver from a line such as
// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 …".
func driverVersion(proc string) string {
	content, err := os.ReadFile(filepath.Join(proc, "driver/nvidia/version"))
	if err != nil {
		return "of unknown version"
	}
	line, _, _ := bytes.Cut(content, []byte("\n"))
	for _, word := range strings.Fields(string(line)) {
		if strings.Count(word, ".") >= 1 && strings.Trim(word, "0123456789.") == "" {
			return word
		}
	}
	return "of unknown version"
}

func checkGPUs(_ context.Context, e *examination) []Result {
	results := make([]Result, 0, len(e.gpus.devices))
	for _, d := range e.gpus.devices {
		results = append(results, judgeGPU(d))
	}
	return results
}

func judgeGPU(d deviceFacts) Result {
	r := Result{Name: fmt.Sprintf("gpu %d", d.Index), Status: OK}
	what := fmt.Sprintf("%s %s", d.Product, d.UUID)
	switch {
	case !d.health.OK:
		r.Status, r.Finding = Fail, fmt.Sprintf("%s: %s", what, d.health.Reason)
		r.Remedy = "do not use it in gpu_uuids until it is healthy"
	case d.err != nil:
		r.Status, r.Finding = Fail, fmt.Sprintf("%s: %v", what, d.err)
		r.Remedy = "reset the GPU or restart the machine"
	default:
		r.Finding = fmt.Sprintf("%s, %s of %s free", what, launcher.BytesText(d.memory.FreeBytes), launcher.BytesText(d.memory.TotalBytes))
	}
	return r
}
