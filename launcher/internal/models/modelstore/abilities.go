package modelstore

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"syscall"
)

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
	probe := s.trash()
	s.hasLinks = true
	f, err := s.openFile(probe, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot write to the model store: %w", err)
	}
	defer func() { _ = s.remove(probe) }() // what is left goes with the trash
	if err := f.Close(); err != nil {
		return fmt.Errorf("cannot write to the model store: %w", err)
	}
	if err := s.seal(probe); err != nil {
		return &UnsuitableError{Dir: s.dir, Why: fmt.Sprintf("keeps no times of files (%v)", err)}
	}
	if info, err := os.Lstat(probe); err != nil || !info.ModTime().Equal(blobTime) {
		return &UnsuitableError{Dir: s.dir, Why: "keeps other times of files than it is given"}
	}
	name := make([]byte, 32)
	_, _ = rand.Read(name) // it cannot fail
	linked := s.blob(hex.EncodeToString(name))
	s.hasLinks = s.works(s.hardLink(probe, linked), linked)
	return nil
}

// works reports whether a file could be made, and removes it. A full disk tells nothing.
func (s *Store) works(err error, path string) bool {
	_ = s.remove(path)
	return err == nil || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
