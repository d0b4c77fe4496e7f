package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	nv "github.com/NVIDIA/go-nvml/pkg/nvml"
)

const nvmlLibraryName = "libnvidia-ml.so.1"

var (
	errNoDevices = errors.New("NVML finds no GPU: check that the machine has one, and that this process (or its container) may use it; or use --gpus simulated:2 to go without a GPU")
	errClosed    = errors.New("NVML is closed")
)

// nvml answers from NVIDIA's management library, which may be called from several
// goroutines; the lock keeps calls apart from the library's shutdown.
type nvml struct {
	lib     nv.Interface
	devices []Device
	calls   *sync.WaitGroup // of the start, which the driver may not answer
	partial bool            // a GPU is left out, as the driver does not answer for it

	mu      sync.RWMutex
	handles map[string]handle // by UUID; nil after Close
}

// handle has the devices to ask NVML about: device for the memory, and board for the
// health. The two differ if device is a MIG device.
type handle struct {
	device, board nv.Device
}

// board is a GPU as NVML lists it, with its usable devices: the GPU itself, or its MIG
// devices.
type board struct {
	domain, bus, slot uint32
	parts             []part
}

type part struct {
	Device
	handle
}

// How long a driver may take at the start. Without persistence mode it first initialises
// each GPU, which takes seconds.
const (
	initTime  = time.Minute
	boardTime = 10 * time.Second // without an answer for any GPU
)

// ErrSilent says that the driver does not answer.
var ErrSilent = errors.New("the GPUs' driver does not answer: see nvidia-smi and the kernel log; reset the GPUs or restart the machine, or use --gpus simulated:2 to go without a GPU")

// openNVML finds the devices. After ErrSilent the calls end when the driver has answered
// them all.
func openNVML(opts Options, calls *sync.WaitGroup) (*nvml, error) {
	if err := probe(opts.NVMLLibrary); err != nil {
		return nil, err
	}
	n := &nvml{lib: nv.New(nv.WithLibraryPath(opts.NVMLLibrary)), handles: map[string]handle{}, calls: calls}
	ret, answered := within(calls, initTime, n.lib.Init)
	if !answered {
		return nil, ErrSilent
	}
	if ret != nv.SUCCESS {
		return nil, failed("nvmlInit", ret)
	}
	if err := n.find(opts.Logger); err != nil {
		closed, _ := within(calls, closeTime, n.Close) // which waits for all calls
		return nil, errors.Join(err, closed)
	}
	driver, _ := within(calls, answerTime, func() string { version, _ := n.lib.SystemGetDriverVersion(); return version })
	opts.Logger.Info("using the GPUs that NVML lists", "gpus", len(n.devices), "driver", driver)
	return n, nil
}

// within returns the answer of one of the calls, if it comes in time. A call that the driver
// does not answer goes on.
func within[T any](calls *sync.WaitGroup, limit time.Duration, call func() T) (answer T, answered bool) {
	result := make(chan T, 1)
	calls.Go(func() { result <- call() })
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case answer = <-result:
		return answer, true
	case <-timer.C:
		return answer, false
	}
}

// probe loads the library once to check that it is NVML. A later call of a missing
// function would end the process.
func probe(path string) error {
	const remedy = "install NVIDIA's driver, name its library in " + EnvNVMLLibrary + ", or use --gpus simulated:2 to go without a GPU"
	lib := dl.New(path, dl.RTLD_LAZY)
	if err := lib.Open(); err != nil {
		return fmt.Errorf("cannot load NVML: %w: %s", err, remedy)
	}
	found := lib.Lookup("nvmlInit_v2")
	if err := lib.Close(); err != nil {
		return fmt.Errorf("cannot unload NVML: %w", err)
	}
	if found != nil {
		return fmt.Errorf("%s is not NVML: %w: %s", path, found, remedy)
	}
	return nil
}

// find lists the devices. A GPU that cannot be opened is left out with a warning while
// others can; CUDA does not count it either. CUDA does count one whose driver does not
// answer, so the indices of the others leave room for it.
func (n *nvml) find(logger *slog.Logger) error {
	count, answered := within(n.calls, boardTime, func() counted { c, ret := n.lib.DeviceGetCount(); return counted{c, ret} })
	if !answered {
		return ErrSilent
	}
	if count.ret != nv.SUCCESS {
		return failed("nvmlDeviceGetCount", count.ret)
	}
	boards, broken := n.boards(count.n)
	slices.SortStableFunc(boards, func(a, b board) int {
		return cmp.Or(cmp.Compare(a.domain, b.domain), cmp.Compare(a.bus, b.bus), cmp.Compare(a.slot, b.slot))
	})
	for index, b := range boards {
		for _, p := range b.parts {
			p.Index = index
			n.devices = append(n.devices, p.Device)
			n.handles[p.UUID] = p.handle
		}
	}
	if len(n.devices) == 0 {
		return cmp.Or(errors.Join(broken...), errNoDevices)
	}
	for _, err := range broken {
		n.partial = n.partial || errors.Is(err, ErrSilent)
		logger.Warn("ignoring a GPU that cannot be used", "error", err)
	}
	return nil
}

type counted struct {
	n   int
	ret nv.Return
}

// boards opens the GPUs, all at once. A GPU that the driver does not answer for has no
// parts.
func (n *nvml) boards(count int) (boards []board, broken []error) {
	type result struct {
		index int
		board board
		err   error
	}
	results := make(chan result, count)
	places := make([]atomic.Pointer[board], count) // as soon as they are known
	for i := range count {
		n.calls.Go(func() {
			n.mu.RLock() // Close waits for the call
			defer n.mu.RUnlock()
			b, err := n.board(i, &places[i])
			results <- result{i, b, err}
		})
	}
	opened := make([]result, count)
	for i := range opened {
		opened[i] = result{err: ErrSilent}
	}
	silence := time.NewTimer(boardTime)
	defer silence.Stop()
	for left := count; left > 0; left-- {
		select {
		case r := <-results:
			opened[r.index] = r
			silence.Reset(boardTime)
			continue
		case <-silence.C:
		}
		break
	}
	last := board{}
	for i, r := range opened {
		if errors.Is(r.err, ErrSilent) { // where not even its place is known, it is that after the one before: NVML commonly lists GPUs in the order of their buses
			if place := places[i].Load(); place != nil {
				last = *place
			}
			r.board = board{domain: last.domain, bus: last.bus, slot: last.slot}
		}
		if r.err != nil {
			broken = append(broken, fmt.Errorf("cannot use GPU %d of NVML: %w", i, r.err))
		}
		if r.err == nil || errors.Is(r.err, ErrSilent) {
			last = r.board
			boards = append(boards, r.board)
		}
	}
	return boards, broken
}

// board opens a GPU. It stores the place of the GPU at place as soon as that is known.
func (n *nvml) board(index int, place *atomic.Pointer[board]) (board, error) {
	device, ret := n.lib.DeviceGetHandleByIndex(index)
	if ret != nv.SUCCESS {
		return board{}, failed("nvmlDeviceGetHandleByIndex", ret)
	}
	pci, ret := device.GetPciInfo()
	if ret != nv.SUCCESS {
		return board{}, failed("nvmlDeviceGetPciInfo", ret)
	}
	b := board{domain: pci.Domain, bus: pci.Bus, slot: pci.Device}
	place.Store(&board{domain: b.domain, bus: b.bus, slot: b.slot})
	sliced, err := n.sliced(device)
	if err != nil {
		return board{}, err
	}
	if sliced {
		b.parts, err = n.migDevices(device)
		return b, err
	}
	whole, err := n.part(device, device)
	b.parts = []part{whole}
	return b, err
}

// sliced reports whether the GPU is in MIG mode, in which only its MIG devices can be
// used.
func (n *nvml) sliced(device nv.Device) (bool, error) {
	if !n.has("nvmlDeviceGetMigMode") {
		return false, nil
	}
	mode, _, ret := device.GetMigMode()
	if ret == nv.ERROR_NOT_SUPPORTED {
		return false, nil
	}
	if ret != nv.SUCCESS {
		return false, failed("nvmlDeviceGetMigMode", ret)
	}
	return mode == nv.DEVICE_MIG_ENABLE, nil
}

func (n *nvml) migDevices(device nv.Device) ([]part, error) {
	count, ret := device.GetMaxMigDeviceCount()
	if ret != nv.SUCCESS {
		return nil, failed("nvmlDeviceGetMaxMigDeviceCount", ret)
	}
	var parts []part
	for i := range count {
		mig, ret := device.GetMigDeviceHandleByIndex(i)
		if ret == nv.ERROR_NOT_FOUND {
			continue // the slots of MIG devices may have gaps
		}
		if ret != nv.SUCCESS {
			return nil, failed("nvmlDeviceGetMigDeviceHandleByIndex", ret)
		}
		p, err := n.part(mig, device)
		if err != nil {
			return nil, err
		}
		p.MIG = true
		parts = append(parts, p)
	}
	if len(parts) == 0 {
		return nil, errors.New("the GPU is in MIG mode and has no MIG devices: create some with nvidia-smi mig, or turn MIG mode off")
	}
	return parts, nil
}

func (n *nvml) part(device, board nv.Device) (part, error) {
	uuid, ret := device.GetUUID()
	if ret != nv.SUCCESS {
		return part{}, failed("nvmlDeviceGetUUID", ret)
	}
	name, ret := device.GetName()
	if ret != nv.SUCCESS {
		return part{}, failed("nvmlDeviceGetName", ret)
	}
	m, err := n.memory(device)
	if err != nil {
		return part{}, err
	}
	return part{
		Device: Device{UUID: uuid, Product: name, MemoryTotalBytes: m.TotalBytes},
		handle: handle{device: device, board: board},
	}, nil
}

// has reports whether the library has the function. The library of an old driver may lack
// it.
func (n *nvml) has(function string) bool {
	return n.lib.Extensions().LookupSymbol(function) == nil
}

const kindNVML = "nvml"

func (n *nvml) Kind() string { return kindNVML }

func (n *nvml) Devices() []Device    { return slices.Clone(n.devices) }
func (n *nvml) AllDevices() []Device { return n.Devices() }

func (n *nvml) Env() []string { return nil }

// Close shuts NVML down once calls under way have ended. A second one is a
// no-op.
func (n *nvml) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.handles == nil {
		return nil
	}
	n.handles = nil
	if ret := n.lib.Shutdown(); ret != nv.SUCCESS {
		return failed("nvmlShutdown", ret)
	}
	return nil
}

// with calls f with the handle of the GPU, while NVML stays open.
func (n *nvml) with(uuid string, f func(handle) error) error {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.handles == nil {
		return errClosed
	}
	h, ok := n.handles[uuid]
	if !ok {
		return unknown(uuid)
	}
	return f(h)
}

// failed says which function of NVML failed, how, and what can be done. The
// result stays in the chain.
func failed(function string, ret nv.Return) error {
	remedies := map[nv.Return]string{
		nv.ERROR_DRIVER_NOT_LOADED:         "load NVIDIA's kernel module; nvidia-smi shows whether it is loaded",
		nv.ERROR_LIBRARY_NOT_FOUND:         "the driver is incomplete: install it again",
		nv.ERROR_LIB_RM_VERSION_MISMATCH:   "library and kernel module are of different releases: load the module again or restart the machine",
		nv.ERROR_NO_PERMISSION:             "run as a user who may open /dev/nvidia*; in a container, request the GPU",
		nv.ERROR_INSUFFICIENT_POWER:        "connect the GPU's power cables",
		nv.ERROR_IRQ_ISSUE:                 "the machine's interrupts are misconfigured: see the kernel log",
		nv.ERROR_GPU_IS_LOST:               reasonLost,
		nv.ERROR_RESET_REQUIRED:            reasonReset,
		nv.ERROR_FUNCTION_NOT_FOUND:        "the driver is too old: install a newer one",
		nv.ERROR_ARGUMENT_VERSION_MISMATCH: "the driver is too old: install a newer one",
	}
	if remedy, ok := remedies[ret]; ok {
		return fmt.Errorf("%s: %w: %s", function, ret, remedy)
	}
	return fmt.Errorf("%s: %w", function, ret)
}
