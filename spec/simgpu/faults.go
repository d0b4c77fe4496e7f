package simgpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Fault is something that makes a simulated GPU ill while a file of that name
// is in its folder.
type Fault string

const (
	// FaultLost is a GPU that has fallen off the bus: nothing can be asked.
	FaultLost Fault = "lost"
	// FaultECC is a GPU that has counted an uncorrectable memory error.
	FaultECC Fault = "ecc"
	// FaultPending is a GPU that must be reset to retire bad memory.
	FaultPending Fault = "remap_pending"
	// FaultRemap is a GPU that has no spare memory left for bad memory.
	FaultRemap Fault = "remap_failed"
)

// Faults lists what is wrong with the GPU, gravest first; nil when it is well.
func (d *Dir) Faults(uuid string) ([]Fault, error) {
	if _, err := d.gpu(uuid); err != nil {
		return nil, err
	}
	var faults []Fault
	for _, fault := range []Fault{FaultLost, FaultRemap, FaultPending, FaultECC} {
		_, err := os.Lstat(filepath.Join(d.folder(uuid), string(fault)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot look for faults of simulated GPU %s: %w", uuid, err)
		}
		faults = append(faults, fault)
	}
	return faults, nil
}
