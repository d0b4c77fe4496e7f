package statedir

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gofrs/flock"
)

const lockFile = "lock"

// folderLock is the exclusive right to a state folder. It lasts until close, or
// until the process ends in whatever way.
type folderLock struct{ file *flock.Flock }

// LockedError says that another process holds the folder.
type LockedError struct {
	Dir string
	// PID is the process id of the holder; 0 when it could not be read.
	PID int
}

func (e *LockedError) Error() string {
	holder := "another process"
	if e.PID > 0 {
		holder = fmt.Sprintf("the process with pid %d", e.PID)
	}
	return fmt.Sprintf("cannot use the state folder %s: %s uses it; stop that, or choose another folder", e.Dir, holder)
}

// lockFolder locks the folder, which is made when it is missing, by a lock on the
// file "lock" in it. It does not wait: the error is a *LockedError when another
// process has the lock. Children do not inherit the lock.
func lockFolder(dir string) (*folderLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the state folder: %w", err)
	}
	path := filepath.Join(dir, lockFile)
	l := &folderLock{flock.New(path, flock.SetPermissions(0o600))}
	switch taken, err := l.file.TryLock(); {
	case err != nil:
		return nil, fmt.Errorf("cannot lock the state folder: %w", err)
	case !taken:
		content, _ := os.ReadFile(path)
		pid, _ := strconv.Atoi(strings.TrimSpace(string(content)))
		return nil, &LockedError{Dir: dir, PID: pid}
	}
	notePID(path)
	return l, nil
}

// notePID writes the process id of the holder into the lock file, for messages to
// people. The text always has the same length, so that it fits on a full disk where
// the last holder's did; where it does not, no pid is better than that of the last
// holder.
func notePID(path string) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if _, err := fmt.Fprintf(io.NewOffsetWriter(f, 0), "%-10d\n", os.Getpid()); err != nil {
		_ = f.Truncate(0)
	}
}

// close unlocks the folder. The lock file stays.
func (l *folderLock) close() error {
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("cannot unlock the state folder: %w", err)
	}
	return nil
}
