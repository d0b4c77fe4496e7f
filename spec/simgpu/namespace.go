package simgpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// homeName is the file that names the PID namespace of the folder: that of who
// opened it first.
const homeName = ".pidns"

// pidNamespace is the number of this process's PID namespace; 0 where /proc does
// not tell.
func pidNamespace() uint64 {
	info, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		return 0
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}

// settle finds out which PID namespace the folder is of: ours, where nobody was
// here before. One that cannot be written to is as it is.
func (d *Dir) settle() error {
	d.own = pidNamespace()
	file := filepath.Join(d.path, homeName)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		text = strconv.AppendUint(nil, d.own, 10)
		if err = publish(d.path, homeName, text); errors.Is(err, fs.ErrExist) {
			text, err = os.ReadFile(file) // another process was first
		} else if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
			err = nil
		}
	}
	if err == nil {
		d.home, err = strconv.ParseUint(string(text), 10, 64)
	}
	if err != nil {
		return fmt.Errorf("cannot tell which PID namespace the simulated GPUs are of: %s: %w", file, err)
	}
	return nil
}

// publish makes the file name of folder, whole, unless it is there.
func publish(folder, name string, text []byte) error {
	file, err := os.CreateTemp(folder, name+".")
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Link(file.Name(), filepath.Join(folder, name))
	}
	return errors.Join(err, os.Remove(file.Name()))
}

// holderName is the name of the file of a process of this PID namespace.
func (d *Dir) holderName(pid int) string {
	if d.own == d.home {
		return strconv.Itoa(pid)
	}
	return fmt.Sprintf("%d.%d", pid, d.own)
}

// holder reads the name of a file; ok says that it is one of a holder.
func (d *Dir) holder(name string) (pid int, foreign, ok bool) {
	number, of, named := strings.Cut(name, ".")
	namespace := d.home
	if named {
		n, err := strconv.ParseUint(of, 10, 64)
		if err != nil || strconv.FormatUint(n, 10) != of {
			return 0, false, false
		}
		namespace = n
	}
	pid, err := strconv.Atoi(number)
	if err != nil || pid <= 0 || strconv.Itoa(pid) != number {
		return 0, false, false
	}
	return pid, namespace != d.own, true
}

// look finds out whether a file of another PID namespace is locked.
func (f *file) look(folder *os.File) error {
	if !f.foreign {
		return nil
	}
	switch err := unix.Flock(f.fd, unix.LOCK_SH|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		f.locked = true
		return nil
	case err != nil:
		return err
	}
	f.locked = false
	if err := unix.Flock(f.fd, unix.LOCK_UN); err != nil {
		return err
	}
	// Replaced just now: whoever did that lives, and holds the next one locked.
	var info unix.Stat_t
	if err := unix.Fstatat(int(folder.Fd()), f.name, &info, 0); err == nil {
		f.locked = info.Ino != f.info.Ino || info.Dev != f.info.Dev
	}
	return nil
}

// locks are the files in which this process says what it holds, by GPU. They are
// open, and so locked, while it lives.
type locks struct {
	mu sync.Mutex
	of map[string]*os.File
}

// put takes the place of the file before; nil for none.
func (l *locks) put(uuid string, file *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.of[uuid]; before != nil {
		_ = before.Close()
	}
	delete(l.of, uuid)
	if file == nil {
		return
	}
	if l.of == nil {
		l.of = map[string]*os.File{}
	}
	l.of[uuid] = file
}

func (l *locks) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uuid, file := range l.of {
		_ = file.Close()
		delete(l.of, uuid)
	}
}
