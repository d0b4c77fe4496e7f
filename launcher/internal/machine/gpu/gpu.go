// Package gpu is the inventory of the machine's GPUs. It lists them, and reports how much
// of their memory is used, by which processes, and whether they are healthy. It asks
// NVIDIA's driver, or reads a folder of simulated GPUs.
package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"hotseat.dev/hotseat/spec/simgpu"
)

// EnvNVMLLibrary is the environment variable with the path of NVML, for machines on which
// the dynamic linker does not find it.
const EnvNVMLLibrary = "HOTSEAT_NVML_LIBRARY"

const (
	// fallbackCount is how many GPUs "auto" simulates where there are none.
	fallbackCount = 2
	// maxSimulated bounds N of simulated:N, so that a typing error does not make a
	// million folders.
	maxSimulated = 128
	// simulatedBytes and simulatedProduct describe the GPUs of simulated:N.
	simulatedBytes   = 80 << 30
	simulatedProduct = "Simulated GPU 80GiB"
)

// Device is a GPU that an instance can be given, or a MIG device.
type Device struct {
	UUID string
	// Index is the position in PCI bus order among the usable GPUs. That is the meaning
	// of CUDA_VISIBLE_DEVICES with CUDA_DEVICE_ORDER=PCI_BUS_ID. All MIG devices of a
	// GPU share its index, so they are addressed by UUID.
	Index   int
	Product string
	// MemoryTotalBytes is the memory that all processes together can hold; see
	// Memory.
	MemoryTotalBytes uint64
	MIG              bool
}

// Memory is the memory of a GPU at one moment: TotalBytes is the sum of UsedBytes and
// FreeBytes. Like CUDA, and unlike nvidia-smi, it leaves out memory that the driver keeps
// for itself.
type Memory struct {
	TotalBytes, UsedBytes, FreeBytes uint64
	// Processes are the processes that hold memory, in the order of their ids; nil
	// when the driver does not say. Processes of other PID namespaces may be
	// missing.
	Processes []Process
	// ProcessesKnown is false when the driver does not say which processes hold
	// memory.
	ProcessesKnown bool
}

// Process is a process that holds memory of a GPU.
type Process struct {
	PID   int
	Bytes uint64
}

// Health is the health of a GPU, as far as cheap checks show it.
type Health struct {
	OK bool
	// Reason says what is wrong and what to do; empty when OK.
	Reason string
}

// The reasons of Health.
const (
	reasonLost    = "the GPU is lost (fallen off the bus): reset it or restart the machine"
	reasonReset   = "the GPU must be reset before it can be used: nvidia-smi --gpu-reset"
	reasonRemap   = "the GPU has no spare memory rows left to replace bad ones: replace the GPU"
	reasonPending = "the GPU has bad memory, which only a reset retires: nvidia-smi --gpu-reset"
	reasonECC     = "the GPU has had uncorrectable memory errors since the driver was loaded: reset it, and replace the GPU if they come back"
)

// Provider answers for the GPUs of the machine. Its methods may be called from
// several goroutines; after Close only Kind and Devices answer.
type Provider interface {
	// Kind is "nvml", "simulated" or "file".
	Kind() string
	// Devices are the GPUs found at the start, in the order of their indices.
	Devices() []Device
	// AllDevices are these and those that Options.Visible leaves out.
	AllDevices() []Device
	// Memory is read anew at each call.
	Memory(uuid string) (Memory, error)
	// Health is asked anew at each call. An unknown UUID is not OK.
	Health(uuid string) Health
	// Env are variables that the environment of engines needs besides.
	Env() []string
	Close() error
}

// Options say where the GPUs come from.
type Options struct {
	// Source is "auto", "nvml", "simulated:N" or "file:PATH". Empty is auto:
	// NVML where it finds a GPU, else two simulated ones, with a warning.
	Source string
	// Visible are the GPUs to use, by index or UUID; "all": all of them. Empty: those
	// that CUDA_VISIBLE_DEVICES names, where there is such a variable and the GPUs are
	// not simulated.
	Visible []string
	// StateDir is the folder in which a folder simgpu of simulated GPUs is made
	// when SimDir is empty.
	StateDir string
	// KnownFile keeps which GPUs the driver has listed since the machine was booted. They
	// are used while the driver does not answer at a later start. Empty: none are kept.
	KnownFile string
	// SimDir is the folder of simulated GPUs; empty: that in HOTSEAT_SIMGPU_DIR.
	SimDir string
	// NVMLLibrary is the path of NVML; empty: that in HOTSEAT_NVML_LIBRARY, or else
	// libnvidia-ml.so.1 where the dynamic linker finds it. A process keeps the
	// first library that it opened.
	NVMLLibrary string
	// Logger logs which GPUs are found; nil: nothing is logged.
	Logger *slog.Logger
}

// SourceError says that Options.Source is wrong on any machine.
type SourceError struct{ Problem string }

func (e *SourceError) Error() string { return e.Problem }

func sourceErrorf(format string, args ...any) error {
	return &SourceError{fmt.Sprintf(format, args...)}
}

// Open finds the GPUs. An error says how to fix it; it is a *SourceError if Source itself
// is wrong.
func Open(opts Options) (Provider, error) {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	opts.SimDir = cmp.Or(opts.SimDir, os.Getenv(simgpu.EnvDir))
	opts.NVMLLibrary = cmp.Or(opts.NVMLLibrary, os.Getenv(EnvNVMLLibrary), nvmlLibraryName)
	all, err := openSource(opts)
	if err != nil {
		return nil, err
	}
	some, err := limit(all, opts)
	if err != nil {
		return nil, errors.Join(err, all.Close())
	}
	return some, nil
}

func openSource(opts Options) (Provider, error) {
	kind, argument, given := strings.Cut(opts.Source, ":")
	switch {
	case opts.Source == "" || opts.Source == "auto":
		return openAuto(opts)
	case opts.Source == "nvml":
		return openDriver(opts)
	case kind == "simulated" && given:
		return openCounted(opts, argument)
	case kind == "file" && argument != "":
		return provider(openFile(argument))
	default:
		return nil, sourceErrorf("unknown source of GPUs %q: use auto, nvml, simulated:N (such as simulated:2) or file:PATH (of a gpus.json)", opts.Source)
	}
}

func openAuto(opts Options) (Provider, error) {
	driver, err := openDriver(opts)
	if err == nil || errors.Is(err, ErrSilent) { // there are GPUs
		return driver, err
	}
	if !errors.Is(err, errNoDevices) {
		opts.Logger.Warn("cannot use NVML", "error", err)
	}
	opts.Logger.Warn("NO GPU FOUND: SIMULATING GPUs. Use --gpus nvml to refuse to start without a GPU",
		"gpus", fallbackCount)
	return provider(openSimulated(opts, fallbackCount))
}

// openDriver opens NVML. Its calls wait for a driver, which may hang. If the driver does not
// answer at all, the GPUs are those that it has listed before, if it has since the boot.
func openDriver(opts Options) (Provider, error) {
	known := knownDevices(opts.KnownFile)
	calls := &sync.WaitGroup{}
	driver, err := openNVML(opts, calls)
	switch {
	case err == nil:
		if len(known) > 0 && driver.partial {
			opts.Logger.Warn("the driver does not answer for one of the GPUs; keeping the list of GPUs from before for later starts", "gpus", len(known))
		} else if err := keepKnown(opts.KnownFile, driver.devices); err != nil {
			opts.Logger.Warn("cannot save the list of GPUs; if their driver hangs at the next start, the launcher cannot start", "error", err)
		}
		return Guard(driver, opts.Logger), nil
	case errors.Is(err, ErrSilent) && len(known) > 0:
		opts.Logger.Error("THE GPUS' DRIVER DOES NOT ANSWER; continuing with the GPUs that it listed before. Models that are awake serve on, and swaps fail. See nvidia-smi and the kernel log; reset the GPUs or restart the machine", "gpus", len(known))
		return newLate(known, opts, calls), nil
	}
	return nil, err
}

func openCounted(opts Options, argument string) (Provider, error) {
	count, err := strconv.Atoi(argument)
	if err != nil || count < 1 || count > maxSimulated {
		return nil, sourceErrorf("cannot simulate %q GPUs: simulated:N takes a number from 1 to %d", argument, maxSimulated)
	}
	return provider(openSimulated(opts, count))
}

func openSimulated(opts Options, count int) (*simulated, error) {
	path := opts.SimDir
	if path == "" {
		if opts.StateDir == "" {
			return nil, fmt.Errorf("cannot simulate GPUs without a folder: set a state folder, or name a folder in %s", simgpu.EnvDir)
		}
		path = filepath.Join(opts.StateDir, "simgpu")
	}
	return newSimulated(path, count)
}

// provider keeps a nil pointer from becoming a Provider that is not nil.
func provider[T any, P interface {
	*T
	Provider
}](p P, err error) (Provider, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}
