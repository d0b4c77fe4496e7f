package modelstore

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// abilities are what the file system of a store can do beyond what each one can.
type abilities struct {
	links    bool // hard links; without them each version has its own copies of its files
	symlinks bool // without them the hub's layout is not made
}

// UnsuitableError says that a store cannot be on a file system.
type UnsuitableError struct {
	Dir, Why string
}

func (e *UnsuitableError) Error() string {
	return fmt.Sprintf("cannot use %s as a model store: its file system %s; choose a folder on another file system, such as ext4 or XFS", e.Dir, e.Why)
}

// try finds out what the file system can do, before anything is fetched. On a full disk,
// where nothing can be tried, the store can still remove models.
func (s *Store) try() error {
	probe := filepath.Join(s.dir, stagingDir, trashPrefix+rand.Text())
	s.can = abilities{links: true, symlinks: true}
	f, err := os.OpenFile(probe, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot write to the model store: %w", err)
	}
	defer os.Remove(probe) // what is left goes with the trash
	if err := f.Close(); err != nil {
		return fmt.Errorf("cannot write to the model store: %w", err)
	}
	if err := seal(probe); err != nil {
		return &UnsuitableError{Dir: s.dir, Why: fmt.Sprintf("keeps no times of files (%v)", err)}
	}
	if info, err := os.Lstat(probe); err != nil || !info.ModTime().Equal(blobTime) {
		return &UnsuitableError{Dir: s.dir, Why: "keeps other times of files than it is given"}
	}
	name := make([]byte, 32)
	_, _ = rand.Read(name) // it cannot fail
	linked := s.blob(hex.EncodeToString(name))
	s.can.links = works(os.Link(probe, linked), linked)
	s.can.symlinks = works(os.Symlink(probe, probe+"-link"), probe+"-link")
	return nil
}

// works reports whether a file could be made, and removes it. A full disk tells nothing.
func works(err error, path string) bool {
	_ = os.Remove(path)
	return err == nil || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// seal gives a file the mode and the time of blobs. Some file systems have no modes.
func seal(path string) error {
	if err := os.Chmod(path, 0o444); err != nil && !errors.Is(err, os.ErrPermission) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return os.Chtimes(path, blobTime, blobTime)
}
