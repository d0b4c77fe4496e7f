package gpu

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"hotseat.dev/hotseat/spec/simgpu"
)

// simulated answers from a folder of simulated GPUs.
type simulated struct {
	kind    string
	dir     *simgpu.Dir
	path    string // of dir, absolute: children have working folders of their own
	devices []Device
}

// newSimulated uses the folder at path. It makes gpus.json there if that is missing, and
// fails if an existing one does not list count GPUs.
func newSimulated(path string, count int) (*simulated, error) {
	dir, err := simgpu.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		dir, err = simgpu.Create(path, simulatedGPUs(count))
	}
	if err != nil {
		return nil, err
	}
	if found := len(dir.GPUs()); found != count {
		return nil, fmt.Errorf("cannot simulate %d GPUs: %s lists %d; use that number, or remove the folder",
			count, filepath.Join(path, "gpus.json"), found)
	}
	return ofFolder("simulated", dir)
}

func simulatedGPUs(count int) []simgpu.GPU {
	gpus := make([]simgpu.GPU, count)
	for i := range gpus {
		gpus[i] = simgpu.GPU{
			UUID:             fmt.Sprintf("GPU-00000000-0000-0000-0000-%012x", i),
			Index:            i,
			Product:          simulatedProduct,
			MemoryTotalBytes: simulatedBytes,
		}
	}
	return gpus
}

// openFile reads a list of GPUs, and uses the folder of the list for the accounts. Engines
// look for gpus.json there, so openFile copies a list of another name to that file.
func openFile(path string) (*simulated, error) {
	gpus, err := simgpu.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(gpus) == 0 {
		return nil, fmt.Errorf("%s lists no GPU: give at least one {uuid, index, product, memory_total_bytes}", path)
	}
	dir, err := simgpu.Create(filepath.Dir(path), gpus)
	if err != nil {
		return nil, err
	}
	return ofFolder("file", dir)
}

func ofFolder(kind string, dir *simgpu.Dir) (*simulated, error) {
	path, err := filepath.Abs(dir.Path())
	if err != nil {
		return nil, fmt.Errorf("cannot find the absolute path of %s: %w", dir.Path(), err)
	}
	_ = dir.Follow() // after an error, look-ups take longer but give the same results
	s := &simulated{kind: kind, dir: dir, path: path}
	for _, g := range dir.GPUs() {
		s.devices = append(s.devices, Device{
			UUID:             g.UUID,
			Index:            g.Index,
			Product:          g.Product,
			MemoryTotalBytes: g.MemoryTotalBytes,
			MIG:              g.MIG(),
		})
	}
	return s, nil
}

func (s *simulated) Kind() string { return s.kind }

func (s *simulated) Devices() []Device    { return slices.Clone(s.devices) }
func (s *simulated) AllDevices() []Device { return s.Devices() }

func (s *simulated) Env() []string { return []string{simgpu.EnvDir + "=" + s.path} }

func (s *simulated) Close() error { return s.dir.Close() }

func (s *simulated) Memory(uuid string) (Memory, error) {
	i := slices.IndexFunc(s.devices, func(d Device) bool { return d.UUID == uuid })
	if i < 0 {
		return Memory{}, unknown(uuid)
	}
	faults, err := s.dir.Faults(uuid)
	if err != nil {
		return Memory{}, err
	}
	if slices.Contains(faults, simgpu.FaultLost) {
		return Memory{}, fmt.Errorf("cannot read the memory of GPU %s: %s", uuid, reasonLost)
	}
	holders, err := s.dir.Holders(uuid)
	if err != nil {
		return Memory{}, err
	}
	m := Memory{TotalBytes: s.devices[i].MemoryTotalBytes, ProcessesKnown: true}
	for _, h := range holders {
		m.UsedBytes += h.Bytes
		if h.PID != 0 { // pid 0 is a process of another container, whose memory a driver counts without listing it
			m.Processes = append(m.Processes, Process(h))
		}
	}
	// Processes that write their bytes without asking for room can claim more than
	// there is.
	m.UsedBytes = min(m.UsedBytes, m.TotalBytes)
	m.FreeBytes = m.TotalBytes - m.UsedBytes
	return m, nil
}

func (s *simulated) Health(uuid string) Health {
	faults, err := s.dir.Faults(uuid)
	if err != nil {
		return Health{Reason: err.Error()}
	}
	if len(faults) == 0 {
		return Health{OK: true}
	}
	reasons := map[simgpu.Fault]string{
		simgpu.FaultLost:    reasonLost,
		simgpu.FaultRemap:   reasonRemap,
		simgpu.FaultPending: reasonPending,
		simgpu.FaultECC:     reasonECC,
	}
	return Health{Reason: reasons[faults[0]]}
}

func unknown(uuid string) error { return fmt.Errorf("there is no GPU %s here", uuid) }
