package simgpu

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockName is the file under a GPU's folder that is locked while memory of it
// is charged.
const lockName = ".lock"

// Holder is a process and the memory it holds of one GPU.
type Holder struct {
	PID   int
	Bytes uint64
}

// OutOfMemoryError says that a GPU has less free memory than was asked for.
type OutOfMemoryError struct {
	UUID                             string
	TotalBytes, FreeBytes, WantBytes uint64
}

func (e *OutOfMemoryError) Error() string {
	return fmt.Sprintf("simulated GPU %s is out of memory: %d bytes wanted, %d of %d free",
		e.UUID, e.WantBytes, e.FreeBytes, e.TotalBytes)
}

// Holders lists who holds memory of the GPU now, in the order of their
// process numbers. Files that do not count and those that say 0 are left out.
func (d *Dir) Holders(uuid string) ([]Holder, error) {
	holders, _, err := d.look(uuid)
	return holders, err
}

// look lists the holders, and the files that processes left behind which were
// killed before they gave their memory back.
func (d *Dir) look(uuid string) (holders []Holder, leftovers []string, err error) {
	if _, err := d.gpu(uuid); err != nil {
		return nil, nil, err
	}
	entries, err := os.ReadDir(d.folder(uuid))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("cannot list the holders of simulated GPU %s: %w", uuid, err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid <= 0 || strconv.Itoa(pid) != entry.Name() {
			continue
		}
		bytes, left, err := d.held(uuid, entry.Name(), pid)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot read a holder of simulated GPU %s: %w", uuid, err)
		}
		if left {
			leftovers = append(leftovers, entry.Name())
		} else if bytes > 0 {
			holders = append(holders, Holder{PID: pid, Bytes: bytes})
		}
	}
	slices.SortFunc(holders, func(a, b Holder) int { return a.PID - b.PID })
	return holders, leftovers, nil
}

// held is what the file name of process pid counts now; left says that it
// counts nothing any more, as that process is gone.
func (d *Dir) held(uuid, name string, pid int) (bytes uint64, left bool, err error) {
	file, err := os.Open(filepath.Join(d.folder(uuid), name))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil // given back since the folder was listed
	}
	if err != nil {
		return 0, false, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return 0, false, err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return 0, false, err
	}
	bytes, until, err := parse(string(text))
	if err != nil {
		return 0, false, fmt.Errorf("%s: %w", file.Name(), err)
	}
	left = bytes > 0 && !time.Now().Before(until) && !wroteAlive(pid, info.ModTime())
	return bytes, left, nil
}

// parse reads what a holder wrote. An empty file is one that is being written
// by something that does not write atomically: it holds nothing yet.
func parse(text string) (bytes uint64, until time.Time, err error) {
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return 0, time.Time{}, nil
	}
	if len(fields) > 2 {
		return 0, time.Time{}, fmt.Errorf("%q is neither \"bytes\" nor \"bytes unix-milliseconds\"", text)
	}
	if bytes, err = strconv.ParseUint(fields[0], 10, 64); err != nil {
		return 0, time.Time{}, fmt.Errorf("cannot read the number of bytes: %w", err)
	}
	if len(fields) == 2 {
		ms, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0, time.Time{}, fmt.Errorf("cannot read until when it counts: %w", err)
		}
		until = time.UnixMilli(ms)
	}
	return bytes, until, nil
}

// Set says that process pid now holds bytes of the GPU, 0 for none, in place
// of what was said before. It does not ask whether they are free: see Reserve.
func (d *Dir) Set(uuid string, pid int, bytes uint64) error {
	return d.set(uuid, pid, bytes, strconv.FormatUint(bytes, 10))
}

// SetUntil is Set, and the memory counts until that moment (to the
// millisecond) even when the process is gone: memory that a driver frees late.
func (d *Dir) SetUntil(uuid string, pid int, bytes uint64, until time.Time) error {
	return d.set(uuid, pid, bytes, fmt.Sprintf("%d %d", bytes, until.UnixMilli()))
}

func (d *Dir) set(uuid string, pid int, bytes uint64, text string) error {
	unlock, err := d.lock(uuid)
	if err != nil {
		return err
	}
	defer unlock()
	return d.write(uuid, pid, bytes, text)
}

// write replaces the file of a process, and removes what others left behind:
// under the lock no new process of such a number is writing there. The lock is
// held.
func (d *Dir) write(uuid string, pid int, bytes uint64, text string) error {
	if pid <= 0 {
		return fmt.Errorf("cannot charge simulated GPU %s: %d is no process", uuid, pid)
	}
	name := strconv.Itoa(pid)
	var err error
	if bytes == 0 {
		err = os.Remove(filepath.Join(d.folder(uuid), name))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	} else {
		d.sweep(uuid)
		err = replace(d.folder(uuid), name, []byte(text))
	}
	if err != nil {
		return fmt.Errorf("cannot charge simulated GPU %s: %w", uuid, err)
	}
	return nil
}

// sweep removes the files of processes that were killed: each would be read
// again at every look. The lock is held.
func (d *Dir) sweep(uuid string) {
	_, leftovers, _ := d.look(uuid) // what cannot be read is for those to name who ask
	for _, name := range leftovers {
		_ = os.Remove(filepath.Join(d.folder(uuid), name)) // it counts nothing, there or not
	}
}

// Reserve is Set when the GPU has room for it beside what the others hold, as
// one step: of two processes that ask at once for more than there is, one is
// refused with an OutOfMemoryError, and what it held before stays.
func (d *Dir) Reserve(uuid string, pid int, bytes uint64) error {
	gpu, err := d.gpu(uuid)
	if err != nil {
		return err
	}
	unlock, err := d.lock(uuid)
	if err != nil {
		return err
	}
	defer unlock()
	holders, err := d.Holders(uuid)
	if err != nil {
		return err
	}
	free := gpu.MemoryTotalBytes
	for _, h := range holders {
		if h.PID != pid {
			free -= min(free, h.Bytes)
		}
	}
	if bytes > free {
		return &OutOfMemoryError{UUID: uuid, TotalBytes: gpu.MemoryTotalBytes, FreeBytes: free, WantBytes: bytes}
	}
	return d.write(uuid, pid, bytes, strconv.FormatUint(bytes, 10))
}

func (d *Dir) lock(uuid string) (unlock func(), err error) {
	if _, err := d.gpu(uuid); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot lock simulated GPU %s: %w", uuid, err)
		}
	}()
	if err := os.MkdirAll(d.folder(uuid), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(d.folder(uuid), lockName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return func() { _ = file.Close() }, nil
}

// replace puts text into the file name of folder, whole or not at all.
func replace(folder, name string, text []byte) error {
	file, err := os.CreateTemp(folder, "."+name+".")
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), filepath.Join(folder, name))
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}
