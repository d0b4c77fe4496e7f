//go:build cgo

package requester

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	nv "github.com/NVIDIA/go-nvml/pkg/nvml"

	"hotseat.dev/hotseat/spec/requesterapi"
)

const nvmlName = "libnvidia-ml.so.1"

// asking keeps one question to NVML from closing it under another one.
var asking sync.Mutex

// fromNVML asks NVIDIA's management library, which lists what the container can
// see. It is initialised for each question and shut down again, so that it holds
// nothing between them: they are few.
type fromNVML struct{ library string }

func (n *fromNVML) uuids() ([]string, error) {
	var found []string
	err := n.each(func(uuid string, _ nv.Interface, _ nv.Device) error {
		found = append(found, uuid)
		return nil
	})
	return found, err
}

func (n *fromNVML) memory() (requesterapi.MemoryUsage, error) {
	usage := requesterapi.MemoryUsage{}
	err := n.each(func(uuid string, lib nv.Interface, device nv.Device) error {
		used, err := usedMemory(lib, device)
		usage[uuid] = mebibytes(used)
		return err
	})
	return usage, err
}

// each calls f with the devices that can be used: the MIG devices of a GPU in
// MIG mode, and the GPU itself otherwise.
func (n *fromNVML) each(f func(uuid string, lib nv.Interface, device nv.Device) error) (err error) {
	path := cmp.Or(n.library, nvmlName)
	asking.Lock()
	defer asking.Unlock()
	if err := isNVML(path); err != nil {
		return err
	}
	lib := nv.New(nv.WithLibraryPath(path))
	if ret := lib.Init(); ret != nv.SUCCESS {
		return said("nvmlInit", ret)
	}
	defer func() {
		if ret := lib.Shutdown(); ret != nv.SUCCESS {
			err = errors.Join(err, said("nvmlShutdown", ret))
		}
	}()
	count, ret := lib.DeviceGetCount()
	if ret != nv.SUCCESS {
		return said("nvmlDeviceGetCount", ret)
	}
	if count == 0 {
		return errors.New("NVML lists no GPU: ask for one in the container's limits")
	}
	for i := range count {
		board, ret := lib.DeviceGetHandleByIndex(i)
		if ret != nv.SUCCESS {
			return fmt.Errorf("cannot use GPU %d: %w", i, said("nvmlDeviceGetHandleByIndex", ret))
		}
		if err := usable(lib, board, f); err != nil {
			return fmt.Errorf("cannot use GPU %d: %w", i, err)
		}
	}
	return nil
}

// isNVML keeps go-nvml from calling functions of another library, which would
// end the process.
func isNVML(path string) error {
	lib := dl.New(path, dl.RTLD_LAZY)
	if err := lib.Open(); err != nil {
		return fmt.Errorf("%w: cannot load NVML: %w: run the container with the nvidia runtime, or name the library in %s", errNobodyKnows, err, envNVMLLibrary)
	}
	missing := lib.Lookup("nvmlInit_v2")
	if err := errors.Join(missing, lib.Close()); err != nil {
		return fmt.Errorf("%s is not NVML: %w: name the right library in %s", path, err, envNVMLLibrary)
	}
	return nil
}

func usable(lib nv.Interface, board nv.Device, f func(string, nv.Interface, nv.Device) error) error {
	devices := []nv.Device{board}
	if has(lib, "nvmlDeviceGetMigMode") {
		mode, _, ret := board.GetMigMode()
		if ret != nv.SUCCESS && ret != nv.ERROR_NOT_SUPPORTED {
			return said("nvmlDeviceGetMigMode", ret)
		}
		if ret == nv.SUCCESS && mode == nv.DEVICE_MIG_ENABLE {
			var err error
			if devices, err = parts(board); err != nil {
				return err
			}
		}
	}
	for _, device := range devices {
		uuid, ret := device.GetUUID()
		if ret != nv.SUCCESS {
			return said("nvmlDeviceGetUUID", ret)
		}
		if err := f(uuid, lib, device); err != nil {
			return err
		}
	}
	return nil
}

// parts are the MIG devices of a GPU; their places need not be filled in a row.
func parts(board nv.Device) (devices []nv.Device, err error) {
	most, ret := board.GetMaxMigDeviceCount()
	if ret != nv.SUCCESS {
		return nil, said("nvmlDeviceGetMaxMigDeviceCount", ret)
	}
	for i := range most {
		device, ret := board.GetMigDeviceHandleByIndex(i)
		if ret == nv.ERROR_NOT_FOUND {
			continue
		}
		if ret != nv.SUCCESS {
			return nil, said("nvmlDeviceGetMigDeviceHandleByIndex", ret)
		}
		devices = append(devices, device)
	}
	return devices, nil
}

// usedMemory leaves out what the driver keeps for itself, as nvidia-smi does in
// memory.used; drivers that do not tell it apart count it.
func usedMemory(lib nv.Interface, device nv.Device) (uint64, error) {
	if has(lib, "nvmlDeviceGetMemoryInfo_v2") {
		if info, ret := device.GetMemoryInfo_v2(); ret == nv.SUCCESS {
			return info.Used, nil
		}
	}
	info, ret := device.GetMemoryInfo()
	if ret != nv.SUCCESS {
		return 0, said("nvmlDeviceGetMemoryInfo", ret)
	}
	return info.Used, nil
}

func has(lib nv.Interface, function string) bool {
	return lib.Extensions().LookupSymbol(function) == nil
}

func said(function string, ret nv.Return) error {
	return fmt.Errorf("%s: %w", function, ret)
}
