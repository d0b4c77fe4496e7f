package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// FolderLock is the exclusive right to a state folder. It ends with Close or
// with the process, however the process ends.
type FolderLock struct {
	file *os.File
}

// LockedError says that another process holds the folder.
type LockedError struct {
	Dir string
	// PID is that of the holder; 0 when it could not be read.
	PID int
}

func (e *LockedError) Error() string {
	holder := "another process"
	if e.PID > 0 {
		holder = fmt.Sprintf("the process with pid %d", e.PID)
	}
	return fmt.Sprintf("cannot use the state folder %s: %s uses it; stop that one, or choose another folder", e.Dir, holder)
}

// Lock takes the folder, making it when it is missing, by a lock on the file
// "lock" in it. It does not wait: the error is a *LockedError when another
// process has it. Children do not inherit the lock.
func Lock(dir string) (*FolderLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the state folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the state folder: %w", err)
	}
	if err := takeLock(f, dir); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &FolderLock{file: f}, nil
}

func takeLock(f *os.File, dir string) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		content, _ := os.ReadFile(f.Name())
		pid, _ := strconv.Atoi(strings.TrimSpace(string(content)))
		return &LockedError{Dir: dir, PID: pid}
	}
	if err != nil {
		return fmt.Errorf("cannot lock the state folder %s: %w", dir, err)
	}
	// The pid is there to be told to people. It has one length always, so that
	// a full disk has the room for it that the last holder had; if there is no
	// room, no pid is better than that of the last holder.
	if _, err := fmt.Fprintf(io.NewOffsetWriter(f, 0), "%-10d\n", os.Getpid()); err != nil {
		_ = f.Truncate(0)
	}
	return nil
}

// Close gives the folder free. The lock file stays.
func (l *FolderLock) Close() error {
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("cannot unlock the state folder: %w", err)
	}
	return nil
}
