package simgpu

import (
	"errors"
	"fmt"
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
	PID   int // 0: of another PID namespace, where its number is another
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
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot read the holders of simulated GPU %s: %w", uuid, err)
		}
	}()
	d.seen.mu.Lock()
	defer d.seen.mu.Unlock()
	files, err := d.files(uuid)
	if err != nil {
		return nil, nil, err
	}
	if err := whoLives(files); err != nil {
		return nil, nil, err
	}
	now := time.Now()
	for _, f := range files {
		switch {
		case !now.Before(f.until) && !f.wroteAlive():
			leftovers = append(leftovers, f.name)
		case f.foreign:
			holders = append(holders, Holder{Bytes: f.bytes})
		default:
			holders = append(holders, Holder{PID: f.pid, Bytes: f.bytes})
		}
	}
	slices.SortStableFunc(holders, func(a, b Holder) int { return a.PID - b.PID })
	return holders, leftovers, nil
}

// files are those in which processes say that they hold memory of a GPU. The lock
// of what was seen is held.
func (d *Dir) files(uuid string) (files []*file, err error) {
	if d.seen.follower.unchanged(uuid, d.folder(uuid)) {
		files = d.seen.last[uuid]
		if !slices.ContainsFunc(files, func(f *file) bool { return f.foreign }) { // of a lock the kernel tells nothing
			return files, nil
		}
		files = nil
	}
	defer func() {
		if err != nil {
			d.seen.follower.forget(uuid)
		}
	}()
	folder, err := os.Open(d.folder(uuid))
	if errors.Is(err, fs.ErrNotExist) {
		d.seen.keep(uuid, nil)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		f, err := d.file(uuid, folder, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(folder.Name(), name), err)
		}
		if f != nil && f.bytes > 0 {
			files = append(files, f)
		}
	}
	d.seen.keep(uuid, files)
	return files, nil
}

// file gives what a file in the folder says, nil where it is none of a holder, or
// none any more. The lock of what was seen is held.
func (d *Dir) file(uuid string, folder *os.File, name string) (*file, error) {
	known := d.seen.of[uuid][name]
	if known != nil && known.unchanged() {
		return known, known.look(folder)
	}
	pid, foreign, ok := d.holder(name)
	if !ok {
		return nil, nil //nolint:nilnil // another file, nothing wrong
	}
	return d.seen.read(uuid, folder, name, pid, foreign, known)
}

// parse reads what a holder wrote. An empty file is one that is being written
// by something that does not write atomically: it holds nothing yet.
func parse(text string) (bytes uint64, until time.Time, err error) {
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return 0, time.Time{}, nil
	}
	if len(fields) > 2 || len(text) > longestText {
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
	return d.set(uuid, pid, bytes, textUntil(bytes, until))
}

func textUntil(bytes uint64, until time.Time) string {
	return fmt.Sprintf("%d %d", bytes, until.UnixMilli())
}

func (d *Dir) set(uuid string, pid int, bytes uint64, text string) error {
	unlock, err := d.lock(uuid)
	if err != nil {
		return err
	}
	defer unlock()
	return d.write(uuid, pid, bytes, text)
}

// write replaces the file of a process. The lock is held.
func (d *Dir) write(uuid string, pid int, bytes uint64, text string) error {
	if pid <= 0 {
		return fmt.Errorf("cannot charge simulated GPU %s: %d is no process", uuid, pid)
	}
	name := d.holderName(pid)
	var file *os.File // stays open, and so locked, while this process holds memory
	var err error
	if bytes == 0 {
		err = os.Remove(filepath.Join(d.folder(uuid), name))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	} else {
		file, err = replace(d.folder(uuid), name, []byte(text))
	}
	if err != nil {
		return fmt.Errorf("cannot charge simulated GPU %s: %w", uuid, err)
	}
	if pid == os.Getpid() {
		d.locks.put(uuid, file)
	} else if file != nil {
		_ = file.Close()
	}
	return nil
}

// Reserve is Set when the GPU has room for it beside what the others hold, as
// one step: of two processes that ask at once for more than there is, one is
// refused with an OutOfMemoryError, and what it held before stays. It removes
// the files of processes that were killed: each would be read again at every
// look.
func (d *Dir) Reserve(uuid string, pid int, bytes uint64) error {
	return d.reserve(uuid, pid, bytes, strconv.FormatUint(bytes, 10))
}

// ReserveUntil is to Reserve what SetUntil is to Set.
func (d *Dir) ReserveUntil(uuid string, pid int, bytes uint64, until time.Time) error {
	return d.reserve(uuid, pid, bytes, textUntil(bytes, until))
}

func (d *Dir) reserve(uuid string, pid int, bytes uint64, text string) error {
	gpu, err := d.gpu(uuid)
	if err != nil {
		return err
	}
	unlock, err := d.lock(uuid)
	if err != nil {
		return err
	}
	defer unlock()
	holders, leftovers, err := d.look(uuid)
	if err != nil {
		return err
	}
	for _, name := range leftovers { // under the lock no new process of such a number is writing there
		_ = os.Remove(filepath.Join(d.folder(uuid), name)) // it counts nothing, there or not
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
	return d.write(uuid, pid, bytes, text)
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
	file, err := os.OpenFile(filepath.Join(d.folder(uuid), lockName), os.O_RDONLY|os.O_CREATE, 0o644) // which may be another user's
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

// replace puts text into the file name of folder, whole or not at all. The file
// is locked until it is closed.
func replace(folder, name string, text []byte) (*os.File, error) {
	file, err := os.CreateTemp(folder, "."+name+".")
	if err != nil {
		return nil, err
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Chmod(0o644), unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	if err == nil {
		err = os.Rename(file.Name(), filepath.Join(folder, name))
	}
	if err != nil {
		_ = os.Remove(file.Name())
		_ = file.Close()
		return nil, err
	}
	return file, nil
}
