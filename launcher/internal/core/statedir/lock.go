package statedir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
)

const lockFile = "lock"

// folderLock is the exclusive right to a state folder. It lasts until close, or
// until the process ends in whatever way.
type folderLock struct {
	file *flock.Flock
	dir  *os.File // locked too; nil where the filesystem locks no folders
}

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
	l := &folderLock{file: flock.New(path, flock.SetPermissions(0o600))}
	switch taken, err := l.file.TryLock(); {
	case err != nil:
		return nil, fmt.Errorf("cannot lock the state folder: %w", err)
	case !taken:
		content, _ := os.ReadFile(path)
		pid, _ := strconv.Atoi(strings.TrimSpace(string(content)))
		return nil, &LockedError{Dir: dir, PID: pid}
	}
	if err := l.lockDir(dir); err != nil {
		return nil, errors.Join(err, l.close())
	}
	notePID(path)
	return l, nil
}

// cleanerTime is how long a cleaner of temporary files may look into the folder, which it
// locks meanwhile.
const cleanerTime = 5 * time.Second

// lockDir locks the folder itself, with two effects. systemd-tmpfiles leaves a locked
// folder alone, with all in it (tmpfiles.d(5)). And where something else has removed the
// lock file of a launcher, no second launcher gets the folder.
func (l *folderLock) lockDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cannot lock the state folder: %w", err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		switch err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			l.dir = dir
			return nil
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EWOULDBLOCK) && time.Since(began) < cleanerTime:
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return errors.Join(&LockedError{Dir: path}, dir.Close())
		default: // NFS, for one, locks no folders
			return dir.Close()
		}
	}
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
	err := l.file.Close()
	if l.dir != nil {
		err = errors.Join(err, l.dir.Close())
	}
	if err != nil {
		return fmt.Errorf("cannot unlock the state folder: %w", err)
	}
	return nil
}
