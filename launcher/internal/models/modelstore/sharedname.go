package modelstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Two launchers of one machine may have one name (--model-user): while the Pod of one
// LauncherConfig replaces another, or by mistake. The leases of a launcher that lives are
// its own. The leases of a launcher that has ended pass to its successor, which releases them:
//
//	the lease names the launcher      to a launcher of that name it is
//	itself                             its own: released unless the instance is there
//	none (earlier releases)            the same, and renamed to itself if the instance is there
//	another that lives                 that one's: left alone
//	another that has ended             left over: released leaseLasts after its last renewal
//
// A launcher lives while it has its file in the folder of leases locked. A launcher that is
// restarted has no lock for a moment, while its engines live: so its leases stay that long.

// livingPrefix begins the name of the file that a living launcher has locked.
const livingPrefix = ".user-"

// live locks the file of this launcher, unless it has. If there is no store, it does
// nothing. The caller holds the lock of the leases.
func (u *User) live() error {
	if kept, err := u.keepsLock(); kept || err != nil {
		return err
	}
	f, free, err := u.tryLock(u.livingFile(u.launcher), os.O_CREATE)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !free { // another User of this launcher has it
		return nil
	}
	if err == nil {
		u.living = f
		err = letReadFile(f, 0o644)
	}
	if err != nil {
		return fmt.Errorf("cannot lock the file that shows that this launcher lives: %w", err)
	}
	return nil
}

// keepsLock reports whether this launcher has its file locked. It closes a file that is no
// longer the one in the folder, as after the folder was restored from a copy.
func (u *User) keepsLock() (bool, error) {
	if u.living == nil {
		return false, nil
	}
	locked, lockedErr := u.living.Stat()
	there, err := os.Lstat(u.livingFile(u.launcher))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("cannot check the file that shows that this launcher lives: %w", err)
	case err == nil && lockedErr == nil && os.SameFile(locked, there):
		return true, nil
	}
	_ = u.living.Close() // nothing was written, so no error matters
	u.living = nil
	return false, nil
}

// Close ends the use of the store by this launcher. Its leases stay. It does not wait for a
// renewal that the disk holds up: the end of the process then unlocks the file.
func (u *User) Close() error {
	if !u.mu.TryLock() {
		return fmt.Errorf("cannot close the model store %s: its disk does not answer; the kernel gives its lock back when the launcher ends", u.dir)
	}
	defer u.mu.Unlock()
	if u.living == nil {
		return nil
	}
	err := u.living.Close()
	u.living = nil
	return err
}

func isLiving(e fs.DirEntry) bool {
	launcher, is := strings.CutPrefix(e.Name(), livingPrefix)
	return is && e.Type().IsRegular() && keyName.MatchString(launcher)
}

func (r *Reader) livingFile(launcher string) string {
	return filepath.Join(r.dir, leasesDir, livingPrefix+launcher)
}

// tryLock opens and locks a file. free is false if another process has it locked.
func (r *Reader) tryLock(path string, flags int) (f *os.File, free bool, err error) {
	if f, err = r.openFile(path, os.O_RDWR|flags, 0o644); err != nil {
		return nil, false, err
	}
	return lockOpen(f, unix.LOCK_EX)
}

// tryShare is tryLock for a file that this process may only read. Its lock is a shared one,
// which file systems take on such files.
func (r *Reader) tryShare(path string) (f *os.File, free bool, err error) {
	if f, err = r.openFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
		return nil, false, err
	}
	return lockOpen(f, unix.LOCK_SH)
}

// lockOpen locks an open file, or closes it.
func lockOpen(f *os.File, how int) (locked *os.File, free bool, err error) {
	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	switch {
	case err == nil:
		return f, true, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, false, f.Close()
	}
	return nil, false, errors.Join(err, f.Close())
}

// releaseLeftOver removes the leases of launchers of this name that have ended, once they
// were not renewed for long, and the files of all launchers that have ended. It also shows
// that this launcher lives.
func (u *User) releaseLeftOver(boot string) error {
	unlock, err := u.lockLeases()
	if err != nil {
		return err
	}
	defer unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.live(); err != nil {
		return err
	}
	lives, err := u.livingLaunchers()
	if err != nil {
		return err
	}
	all, err := u.leases()
	if err != nil || len(all) == 0 {
		return err
	}
	now, err := u.now()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range all {
		if l.User == u.name && l.BootID == boot && l.Launcher != "" && !lives[l.Launcher] && now.Sub(l.renewed) >= leaseLasts {
			errs = append(errs, u.removeFile(l.path))
		}
	}
	return errors.Join(errs...)
}

// livingLaunchers returns the launchers that live, and removes the files of those that
// have ended. The caller holds the lock of the leases.
func (u *User) livingLaunchers() (map[string]bool, error) {
	lives := map[string]bool{u.launcher: true}
	files, err := u.ownEntries(leasesDir, isLiving)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot list the launchers that use the models: %w", err)
	}
	for _, e := range files {
		launcher := strings.TrimPrefix(e.Name(), livingPrefix)
		if launcher == u.launcher {
			continue
		}
		f, free, err := u.tryLock(u.livingFile(launcher), 0)
		if errors.Is(err, fs.ErrPermission) { // another user's
			f, free, err = u.tryShare(u.livingFile(launcher))
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, fs.ErrPermission): // it may live
			lives[launcher] = true
		case err != nil:
			return nil, fmt.Errorf("cannot find out whether a launcher lives: %w", err)
		case !free:
			lives[launcher] = true
		default:
			if err := errors.Join(u.removeFile(u.livingFile(launcher)), f.Close()); err != nil && !errors.Is(err, fs.ErrPermission) {
				return nil, fmt.Errorf("cannot remove the file of a launcher that has ended: %w", err)
			}
		}
	}
	return lives, nil
}
