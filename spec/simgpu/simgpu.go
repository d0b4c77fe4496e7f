// Package simgpu is the folder of simulated GPUs that the launcher, the
// stand-in engine and the stand-in libnvidia-ml share, so that memory checks
// are real where there is no GPU.
//
// The folder holds gpus.json, a list of GPU, and one folder for each UUID. A
// process that holds memory of a GPU says so in a file of its own:
//
//	<dir>/<uuid>/<pid>             "<bytes>" or "<bytes> <unix milliseconds>", decimal
//	<dir>/<uuid>/<pid>.<pidns>     of another PID namespace than the folder's
//
// Any process may write such a file; this package writes them atomically. A
// file counts while its process lives (a zombie does not), and with a second
// number also until that moment, whether or not the process lives: so looks
// memory that a driver frees late. A file that is older than the process of
// that number belongs to an earlier one, and counts nothing: it is removed when
// another process reserves memory of that GPU.
//
// The folder's PID namespace is that of who made or opened it first. A process of
// another one, in another container, has the number of its namespace (of
// /proc/self/ns/pid) in the name of its file. What lives there cannot be seen
// from here: a file counts while it is locked (flock(2)), which this package does
// for the file of the process that it runs in.
//
// Files with other names hold no memory. Those that Faults lists make a GPU
// ill; names that begin with a dot are the package's own.
package simgpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// EnvDir names the environment variable in which processes are given the
// folder.
const EnvDir = "HOTSEAT_SIMGPU_DIR"

// fileName is the list of GPUs inside the folder.
const fileName = "gpus.json"

// GPU is one simulated GPU, or one MIG device of one.
type GPU struct {
	// UUID names the GPU and its folder. MIG devices begin with "MIG-".
	UUID string `json:"uuid"`
	// Index is the position in PCI bus order. The MIG devices of one GPU
	// share its index; otherwise no two are the same.
	Index int `json:"index"`
	// Product is the name as a driver would give it.
	Product string `json:"product"`
	// MemoryTotalBytes is what processes can hold of it together, at least 1.
	MemoryTotalBytes uint64 `json:"memory_total_bytes"`
}

// MIG says whether the entry is a MIG device: a slice of a GPU.
func (g GPU) MIG() bool { return strings.HasPrefix(g.UUID, "MIG-") }

// Dir is a folder of simulated GPUs. Its methods may be called from several
// goroutines and processes at once. It keeps two descriptors for each process that
// it saw holding memory, until the first look after that has given it back.
type Dir struct {
	path  string
	gpus  []GPU
	own   uint64 // this process's PID namespace
	home  uint64 // the folder's
	seen  seen
	locks locks
}

// Create makes the folder path for gpus, or opens it when it is there already
// with the same ones. A folder whose gpus.json differs is an error that names
// the file, and stays as it was.
func Create(path string, gpus []GPU) (*Dir, error) {
	list, err := checked(gpus)
	if err != nil {
		return nil, fmt.Errorf("cannot make simulated GPUs in %s: %w", path, err)
	}
	file := filepath.Join(path, fileName)
	switch there, err := ReadFile(file); {
	case errors.Is(err, fs.ErrNotExist):
		if err := writeList(path, list); err != nil {
			return nil, fmt.Errorf("cannot make simulated GPUs in %s: %w", path, err)
		}
	case err != nil:
		return nil, err
	case !slices.Equal(there, list):
		return nil, fmt.Errorf("cannot make simulated GPUs: %s is there already and lists other GPUs", file)
	}
	d := &Dir{path: path, gpus: list}
	if err := d.settle(); err != nil {
		return nil, err
	}
	for _, g := range list {
		if err := os.MkdirAll(d.folder(g.UUID), 0o755); err != nil {
			return nil, fmt.Errorf("cannot make the folder of a simulated GPU: %w", err)
		}
	}
	return d, nil
}

// Open reads the folder at path. It is an error when there is no gpus.json in
// it (fs.ErrNotExist) or when that cannot be understood.
func Open(path string) (*Dir, error) {
	gpus, err := ReadFile(filepath.Join(path, fileName))
	if err != nil {
		return nil, err
	}
	d := &Dir{path: path, gpus: gpus}
	return d, d.settle()
}

// ReadFile reads a list of GPUs that has the form of gpus.json, in the order
// of index, then UUID.
func ReadFile(file string) ([]GPU, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read simulated GPUs: %w", err)
	}
	var gpus []GPU
	if err := json.Unmarshal(text, &gpus); err != nil {
		return nil, fmt.Errorf("cannot read simulated GPUs from %s: %w", file, err)
	}
	list, err := checked(gpus)
	if err != nil {
		return nil, fmt.Errorf("cannot read simulated GPUs from %s: %w", file, err)
	}
	return list, nil
}

// Path is the folder, as a process finds it in EnvDir.
func (d *Dir) Path() string { return d.path }

// GPUs lists the GPUs in the order of index, then UUID.
func (d *Dir) GPUs() []GPU { return slices.Clone(d.gpus) }

func (d *Dir) folder(uuid string) string { return filepath.Join(d.path, uuid) }

func (d *Dir) gpu(uuid string) (GPU, error) {
	for _, g := range d.gpus {
		if g.UUID == uuid {
			return g, nil
		}
	}
	return GPU{}, fmt.Errorf("no simulated GPU %q in %s", uuid, d.path)
}

// checked is a sorted copy of gpus, or what is wrong with them.
func checked(gpus []GPU) ([]GPU, error) {
	uuids, whole := map[string]bool{}, map[int]bool{}
	sliced := map[int]bool{}
	for i, g := range gpus {
		switch {
		case g.UUID == "" || g.UUID[0] == '.' || strings.ContainsAny(g.UUID, "/\x00") || g.UUID == fileName:
			return nil, fmt.Errorf("entry %d: uuid %q cannot be the name of a folder", i, g.UUID)
		case uuids[g.UUID]:
			return nil, fmt.Errorf("entry %d: uuid %s is there twice", i, g.UUID)
		case g.Index < 0:
			return nil, fmt.Errorf("entry %d: index %d is negative", i, g.Index)
		case whole[g.Index] || !g.MIG() && sliced[g.Index]:
			return nil, fmt.Errorf("entry %d: index %d is there twice", i, g.Index)
		case g.MemoryTotalBytes == 0:
			return nil, fmt.Errorf("entry %d: memory_total_bytes is missing or 0", i)
		}
		uuids[g.UUID] = true
		whole[g.Index] = !g.MIG()
		sliced[g.Index] = g.MIG()
	}
	list := slices.Clone(gpus)
	slices.SortFunc(list, func(a, b GPU) int {
		if a.Index != b.Index {
			return a.Index - b.Index
		}
		return strings.Compare(a.UUID, b.UUID)
	})
	return list, nil
}

func writeList(path string, gpus []GPU) error {
	text, err := json.MarshalIndent(gpus, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	file, err := replace(path, fileName, append(text, '\n'))
	if err != nil {
		return err
	}
	return file.Close()
}
