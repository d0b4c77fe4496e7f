package compiled

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// The folder of the caches may be in a model store that other users may change. Engines run
// what is in a cache, so the folders on the way to it must not belong to another user:
//
//	what                          must be                                      not for every user to write to
//	the folder above the caches   of this user or root; in a Pod, of anybody   outside of Pods
//	the folder of the caches      no link; of this user or root                outside of Pods
//	the own cache, and below it   no link; of this user or root                outside of Pods
//
// In a Pod, the kubelet or the filesystem may give all users the right to write, and only the
// Pod's containers have the folder. A folder that is sticky, as /tmp is, protects what is in it.
//
// A file system may give the files of this process to another user, as NFS does with those of
// root. That user is as good as this one. Changes go through [os.Root], so that a link that is
// made later leads nowhere else.

// openFolder opens the folder of the caches of all kinds, and makes it where it is missing.
func openFolder(dir string) (*os.Root, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	above, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	defer above.Close()
	if !inPod() {
		if err := trust(above, "."); err != nil {
			return nil, err
		}
	}
	return ownFolder(above, filepath.Base(dir))
}

// inPod reports whether this process runs in a Pod of Kubernetes: the user who made a mounted folder
// may be another one.
func inPod() bool { return os.Getenv("KUBERNETES_SERVICE_HOST") != "" }

// ownFolder opens a folder that belongs to this user or root, and makes it where it is missing.
func ownFolder(above *os.Root, name string) (*os.Root, error) {
	if err := above.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := trust(above, name); err != nil {
		return nil, err
	}
	return above.OpenRoot(name)
}

// trust refuses what is no folder, or one of another user.
func trust(above *os.Root, name string) error {
	info, err := above.Lstat(name)
	if err != nil {
		return err
	}
	path := filepath.Join(above.Name(), name)
	if !info.IsDir() {
		return fmt.Errorf("%s is not a folder; if it is a link, the launcher does not follow it; find out who made it, and remove it", path)
	}
	if !inPod() && info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("every user may write to %s (mode %04o), and could put code there that engines would run; run: chmod o-w %[1]s", path, info.Mode().Perm())
	}
	owner := ownerOf(info)
	if owner == 0 || owner == os.Geteuid() {
		return nil
	}
	if mine, err := ownerOfNew(above, name); err != nil || mine != owner {
		return fmt.Errorf("%s belongs to user %d, whose code engines would run as user %d; give it to the launcher's user (chown), or remove it", path, owner, os.Geteuid())
	}
	return nil
}

func ownerOf(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// ownerOfNew returns to whom the file system gives the files that this process makes in a
// folder.
func ownerOfNew(above *os.Root, folder string) (owner int, err error) {
	name := path.Join(folder, trashPrefix+rand.Text())
	f, err := above.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return -1, err
	}
	defer func() { err = errors.Join(err, f.Close(), above.Remove(name)) }()
	info, err := f.Stat()
	if err != nil {
		return -1, err
	}
	return ownerOf(info), nil
}

// prepare makes the own cache where it is missing, and holds it.
func (c *Cache) prepare(kind []byte) error {
	for c.lock == nil { // a second time when somebody has removed it meanwhile
		own, err := ownFolder(c.root, c.key)
		if err != nil {
			return err
		}
		for _, dir := range []string{cacheDir, startedDir} {
			folder, failed := ownFolder(own, dir)
			if failed == nil {
				failed = folder.Close()
			}
			err = errors.Join(err, failed)
		}
		if err = errors.Join(err, own.Close()); err == nil {
			c.lock, err = c.hold(path.Join(c.key, lockFile), unix.LOCK_SH)
		}
		if err != nil {
			return err
		}
	}
	if there, err := c.readKind(c.key); err == nil && bytes.Equal(there, kind) {
		return nil
	}
	return c.writeText(path.Join(c.key, kindFile), kind) // it may be damaged
}

// readKind reads the kind of a cache.
func (c *Cache) readKind(key string) ([]byte, error) {
	if !keyPattern.MatchString(key) {
		return nil, c.notFound(key)
	}
	f, err := c.openFile(path.Join(key, kindFile), os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxKind))
}

// writeText writes a file of the caches.
func (c *Cache) writeText(name string, text []byte) error {
	f, err := c.openFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// openFile opens a file of the caches, and refuses what is none.
func (c *Cache) openFile(name string, flags int) (*os.File, error) {
	info, err := c.root.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file; if it is a link, the launcher does not follow it; find out who made it, and remove it", filepath.Join(c.root.Name(), name))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return c.root.OpenFile(name, flags, 0o644)
}
