package statedir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// FolderError says that a folder cannot be a state folder: another user could put files or
// links into it, or another folder in its place, or it has files of others.
type FolderError struct {
	Dir    string
	Reason string // what is wrong, and what to do
}

func (e *FolderError) Error() string {
	return fmt.Sprintf("cannot use the state folder %s: %s", e.Dir, e.Reason)
}

// Prepare creates a state folder, which nobody else may use, where there is none, checks it
// by [Check], and marks it. If a full disk has no room for the mark, the folder has none until
// [Dir.KeepMark] succeeds.
func Prepare(path string) error {
	if err := Check(path); err != nil { // before anything is created below a link of another user
		return err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("cannot create the state folder: %w", err)
	}
	if err := Check(path); err != nil {
		return err
	}
	err := markFolder(path)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil
	}
	return err
}

// Check returns a [*FolderError] for a folder that has files of others and no mark, and for
// one into which another user could put files or links that the launcher would follow:
//
//	what                       must belong to          others may write to it
//	the folder                 this user               no
//	what is in it              this user, root         not looked at
//	a folder on the way        this user, root         no, except where it is sticky, as /tmp is
//	a link on the way          this user, root         (links have no mode)
//
// In a Pod, what is on the way is not looked at: everybody may write to an emptyDir, and
// only containers of the Pod have it. A folder that is missing is no error.
func Check(path string) error {
	f, err := walk(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(f)
	if err != nil {
		return fmt.Errorf("cannot look into the state folder: %w", err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot look into the state folder: %w", err)
		}
		if owner := ownerOf(info); !isTrusted(owner) {
			return &FolderError{path, fmt.Sprintf("%s in it belongs to user %d; look at what is in the folder, or choose another by --state-dir", entry.Name(), owner)}
		}
	}
	return checkOwn(path, entries)
}

// mostLinks bounds the links on the way to a folder, as the kernel does.
const mostLinks = 40

// walk follows a path from the root, checks each step, and returns the path without links.
func walk(path string) (string, error) {
	at, rest, links := "/", elements(path), 0
	for len(rest) > 0 {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		info, err := os.Lstat(next)
		if err != nil {
			return "", fmt.Errorf("cannot look at the state folder: %w", err)
		}
		if reason := distrust(next, info, len(rest) == 0); reason != "" {
			return "", &FolderError{path, reason}
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		target, err := os.Readlink(next)
		if links++; err == nil && links > mostLinks {
			err = syscall.ELOOP
		}
		if err != nil {
			return "", fmt.Errorf("cannot look at the state folder: %w", err)
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = slices.Concat(elements(target), rest)
	}
	return at, nil
}

func elements(path string) []string {
	return slices.DeleteFunc(strings.Split(filepath.Clean(path), "/"), func(e string) bool { return e == "" })
}

// distrust says why a step on the way to a state folder, or the folder itself, cannot be
// trusted; empty: it can.
func distrust(path string, info fs.FileInfo, last bool) string {
	owner, link := ownerOf(info), info.Mode()&fs.ModeSymlink != 0
	switch {
	case last && !link:
		if owner != os.Geteuid() {
			return fmt.Sprintf("it belongs to user %d, and the launcher runs as user %d; choose another by --state-dir, such as a new folder in it", owner, os.Geteuid())
		}
		if othersMayWrite(info) {
			return fmt.Sprintf("others may write to it (mode %04o); choose another by --state-dir, such as a new folder in it, which the launcher creates; or look at what is in it and run chmod go-w", info.Mode().Perm())
		}
	case InPod():
	case !isTrusted(owner):
		return fmt.Sprintf("%s on its way belongs to user %d; choose another by --state-dir", path, owner)
	case !link && othersMayWrite(info) && info.Mode()&fs.ModeSticky == 0:
		return fmt.Sprintf("others may write to %s on its way (mode %04o), and could replace the folder; choose another by --state-dir, or run chmod go-w %s", path, info.Mode().Perm(), path)
	}
	return ""
}

// ownerOf is the user that a file belongs to; -1: that cannot be told.
func ownerOf(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// overflowUser is what the kernel shows for users that a user namespace does not have
// (user_namespaces(7)).
const overflowUser = 65534

// isTrusted reports whether files of a user are as good as those of this one: root's are,
// also where a user namespace does not have root.
func isTrusted(owner int) bool {
	if owner == overflowUser {
		users, err := os.ReadFile("/proc/self/uid_map")
		whole := slices.Equal(strings.Fields(string(users)), []string{"0", "0", "4294967295"})
		return err == nil && !whole
	}
	return owner == 0 || owner == os.Geteuid()
}

// othersMayWrite reports whether users other than this one and root may write to a
// folder. The group that has this user's name and number, as most systems give to each
// user, is not others: with it, folders have mode 0775 (umask 002).
func othersMayWrite(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	private := ok && int(stat.Gid) == os.Getegid() && os.Getegid() == os.Geteuid()
	return info.Mode().Perm()&0o002 != 0 || info.Mode().Perm()&0o020 != 0 && !private
}

// InPod reports whether this process runs in a Pod of Kubernetes, whose files only the
// launcher and its engines can reach
// (https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables).
func InPod() bool { return os.Getenv("KUBERNETES_SERVICE_HOST") != "" }

// openOwn opens a file and follows no link that stands in its place.
func openOwn(path string, flags int) (*os.File, error) {
	return os.OpenFile(path, flags|unix.O_NOFOLLOW, 0o600)
}

// readOwn reads a file and follows no link that stands in its place.
func readOwn(path string) ([]byte, error) {
	f, err := openOwn(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
