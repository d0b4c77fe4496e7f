package modelstore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The folder of a store may belong to another user than this process, and others may write to
// it. They may put links there at any moment. So this process changes the store through
// [os.Root], which follows no link that leads out of the folder. Links on the way to the folder
// are followed when it is opened.

// LayoutError says that something in a store is not what a store has there, such as a link.
type LayoutError struct {
	Dir, Name string
	Is        fs.FileMode // its type
}

func (e *LayoutError) Error() string {
	is := "of another kind than the store's own; find out who made it, and remove it"
	if e.Is&fs.ModeSymlink != 0 {
		is = "a link, and the store follows none; find out who made it, and remove it, or move what it leads to into its place"
	}
	return fmt.Sprintf("cannot use the model store %s: %s in it is %s", e.Dir, e.Name, is)
}

// CheckLayout returns a *LayoutError if a link is in the place of a folder or file of a store.
func CheckLayout(dir string) error {
	for _, name := range []string{blobsDir, modelsDir, keptDir, stagingDir, leasesDir, wantsDir, hubDir, ProofsDir, lockFile} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot look into the folder of the model store: %w", err)
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return &LayoutError{Dir: dir, Name: name, Is: info.Mode().Type()}
		}
	}
	return nil
}

// Exposed says that every user may change a store, and what to do about it; empty: not every
// user may, or there is no store.
func Exposed(dir string) string {
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm()&0o002 == 0 || info.Mode()&fs.ModeSticky != 0 {
		return ""
	}
	return fmt.Sprintf("every user who reaches the model store %s may change its models (mode %04o); if other users do, run: chmod o-w %[1]s", dir, info.Mode().Perm())
}

// within calls do with the folder of the store. The owner has it open all the time.
func (r *Reader) within(do func(root *os.Root) error) error {
	if r.root != nil {
		return r.inFull(do(r.root))
	}
	root, err := os.OpenRoot(r.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return r.inFull(do(root))
}

// inFull has an error name files by their whole paths.
func (r *Reader) inFull(err error) error {
	whole := func(name *string) {
		if !strings.HasPrefix(*name, r.dir) {
			*name = filepath.Join(r.dir, *name)
		}
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		whole(&e.Path)
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		whole(&e.Old)
		whole(&e.New)
	}
	return err
}

// name returns the name of a path below the folder of the store.
func (r *Reader) name(path string) string {
	name, err := filepath.Rel(r.dir, path)
	if err != nil {
		return ".." // which os.Root refuses
	}
	return name
}

func (r *Reader) rename(from, to string) error {
	return r.within(func(root *os.Root) error { return root.Rename(r.name(from), r.name(to)) })
}

func (r *Reader) hardLink(of, name string) error {
	return r.within(func(root *os.Root) error { return root.Link(r.name(of), r.name(name)) })
}

func (r *Reader) remove(path string) error {
	return r.within(func(root *os.Root) error { return root.Remove(r.name(path)) })
}

func (r *Reader) removeAll(path string) error {
	return r.within(func(root *os.Root) error { return root.RemoveAll(r.name(path)) })
}

// removeFile removes a file, if it is there. A folder that somebody has made in its place
// stays.
func (r *Reader) removeFile(path string) error {
	err := r.remove(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	return err
}

// removeEmpty removes a folder that has no files.
func (r *Reader) removeEmpty(path string) {
	_ = r.within(func(root *os.Root) error {
		info, err := root.Lstat(r.name(path))
		if err != nil || !info.IsDir() {
			return err
		}
		return root.Remove(r.name(path))
	})
}

// openFile opens a file, or makes it. The error is a *LayoutError if it is no regular file.
func (r *Reader) openFile(path string, flags int, mode fs.FileMode) (f *os.File, err error) {
	err = r.within(func(root *os.Root) error {
		name := r.name(path)
		info, err := root.Lstat(name)
		if err == nil && !info.Mode().IsRegular() {
			return &LayoutError{Dir: r.dir, Name: name, Is: info.Mode().Type()}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		f, err = root.OpenFile(name, flags, mode)
		return err
	})
	return f, err
}

// write writes a file that has these rights, whatever the umask says.
func (r *Reader) write(path string, text []byte, rights fs.FileMode) error {
	return r.writeThen(path, text, rights, func(*os.File) error { return nil })
}

// writeSynced writes a file that others may read, and syncs it to the disk.
func (r *Reader) writeSynced(path string, text []byte) error {
	return r.writeThen(path, text, 0o644, (*os.File).Sync)
}

func (r *Reader) writeThen(path string, text []byte, rights fs.FileMode, finish func(*os.File) error) (err error) {
	f, err := r.openFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, rights)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(text); err != nil {
		return err
	}
	return errors.Join(letReadFile(f, rights), finish(f))
}

// letReadFile adds rights to an open file. Some file systems have none to add.
func letReadFile(f *os.File, rights fs.FileMode) error {
	info, err := f.Stat()
	if err != nil || info.Mode()&rights == rights {
		return err
	}
	return ifSupported(f.Chmod(info.Mode() | rights))
}

// ifSupported drops an error that says that a file system has no modes.
func ifSupported(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// makeFolder makes a folder that others may read, whatever the umask says: the folder of the
// store decides who may read it.
func (r *Reader) makeFolder(path string) error {
	return r.within(func(root *os.Root) error { return makeFolder(root, r.name(path)) })
}

func makeFolder(root *os.Root, name string) error {
	if _, err := root.Stat(name); err == nil {
		return nil
	}
	if err := makeFolder(root, filepath.Dir(name)); err != nil {
		return err
	}
	if err := root.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := root.Lstat(name)
	if err != nil || info.Mode()&0o755 == 0o755 {
		return err
	}
	return ifSupported(root.Chmod(name, info.Mode()|0o755))
}

// moveAside moves a file, and takes another name for it if there is one of that name.
func (r *Reader) moveAside(path, to string) error {
	if err := r.makeFolder(filepath.Dir(to)); err != nil {
		return err
	}
	free := to
	for n := 2; ; n++ {
		if _, err := os.Lstat(free); errors.Is(err, os.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
		free = fmt.Sprintf("%s.%d", to, n)
	}
	return r.rename(path, free)
}

// seal gives a file the mode and the time of blobs. Some file systems have no modes.
func (r *Reader) seal(path string) error {
	return r.within(func(root *os.Root) error {
		name := r.name(path)
		if err := ifSupported(root.Chmod(name, 0o444)); err != nil {
			return err
		}
		return root.Chtimes(name, blobTime, blobTime)
	})
}

// touch sets the time of a file or folder to now, by the clock of its file system.
func (r *Reader) touch(path string) error {
	return r.within(func(root *os.Root) error {
		folder, name := filepath.Split(r.name(path))
		in, err := root.Open(filepath.Clean(folder))
		if err != nil {
			return err
		}
		defer in.Close()
		now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
		return unix.UtimesNanoAt(int(in.Fd()), name, now, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// syncDir writes a folder's entries to the disk, so that renames survive a crash of
// the machine.
func (r *Reader) syncDir(path string) error {
	return r.within(func(root *os.Root) error {
		f, err := root.Open(r.name(path))
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}

// trash returns a new path in the trash.
func (r *Reader) trash() string { return filepath.Join(r.dir, stagingDir, trashPrefix+rand.Text()) }
