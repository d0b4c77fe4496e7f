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
// until the process ends in whatever way. It is a lock on the file "lock", and one on the
// folder itself, which stays where that file is removed. The open folder keeps its
// identity from being given to another folder.
type folderLock struct {
	file   *flock.Flock
	folder *os.File
	last   int // the process id in the lock file, of the holder before; 0: none
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

// lockFolder locks the folder, which is created when it is missing. It does not wait: the
// error is a *LockedError when another process has the lock, and a *FolderError for a
// folder that is not this user's own. Children do not inherit the lock.
func lockFolder(dir string) (_ *folderLock, err error) {
	if err := Prepare(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, lockFile)
	l := &folderLock{file: flock.New(path, flock.SetPermissions(0o600), flock.SetFlag(os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW))}
	taken, err := l.file.TryLock()
	if err != nil {
		return nil, fmt.Errorf("cannot lock the state folder: %w", err)
	}
	content, _ := os.ReadFile(path)
	l.last, _ = strconv.Atoi(strings.TrimSpace(string(content)))
	if !taken {
		return nil, &LockedError{Dir: dir, PID: l.last}
	}
	if l.folder, err = os.Open(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot lock the state folder: %w", err), l.file.Close())
	}
	if !l.lockItself() {
		return nil, errors.Join(&LockedError{Dir: dir}, l.close())
	}
	notePID(path)
	return l, nil
}

// cleanerTime is how long a cleaner of temporary files may look into the folder, which it
// locks meanwhile.
const cleanerTime = 5 * time.Second

// lockItself locks the folder itself, and returns false if another process has it locked.
// systemd-tmpfiles leaves a locked folder alone, with all in it (tmpfiles.d(5)). A
// filesystem that locks only files open for writing refuses the lock (NFS, flock(2)); that
// counts as a lock.
func (l *folderLock) lockItself() bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		err := unix.Flock(int(l.folder.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EWOULDBLOCK) && time.Since(began) < cleanerTime:
		default:
			return !errors.Is(err, unix.EWOULDBLOCK)
		}
	}
}

// notePID writes the process id of the holder into the lock file, for messages to
// people. The text always has the same length, so that it fits on a full disk where
// the last holder's did; where it does not, no pid is better than that of the last
// holder.
func notePID(path string) {
	f, err := openOwn(path, os.O_WRONLY)
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
	if err := errors.Join(l.folder.Close(), l.file.Close()); err != nil {
		return fmt.Errorf("cannot unlock the state folder: %w", err)
	}
	return nil
}
