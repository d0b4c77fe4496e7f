package modelstore

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// InUseError says who keeps a version from being removed.
type InUseError struct {
	Model   string
	Holders []string
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("cannot remove %s: it is in use by %s; end that first", e.Model, strings.Join(e.Holders, ", "))
}

// WantedError says who wants a version that somebody else would remove.
type WantedError struct {
	Model   string
	Holders []string
}

func (e *WantedError) Error() string {
	return fmt.Sprintf("cannot remove %s: it is wanted by %s, which would have it fetched again; remove that first", e.Model, strings.Join(e.Holders, ", "))
}

// Remove removes a version, and what was fetched of it, unless somebody has a lease
// on it or it is being fetched. One that others want stays: where a holder is named
// that one wants it no more, and otherwise the error is a *WantedError.
func (s *Store) Remove(key, holder string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, others, err := s.wantsOf(key, holder)
	if err != nil {
		return err
	}
	v, there := s.Version(key)
	v.Wants = others
	switch fetch := s.fetching(key); {
	case !there: // it was wanted, and nothing came of it
		return cmp.Or[error](s.dropWants(own), &NotFoundError{Dir: s.dir, Name: key})
	case len(others) > 0 && holder != "":
		if fetch != nil {
			fetch.later = slices.DeleteFunc(fetch.later, func(w Want) bool { return w.Holder == holder })
		}
		return errors.Join(s.dropWants(own), s.mendHub())
	case len(others) > 0:
		return &WantedError{Model: v.Manifest.URI, Holders: v.WantedBy()}
	}
	if err := s.takeAway(&v); err != nil {
		return err
	}
	return errors.Join(s.dropWants(own), s.mendHub(), s.emptyTrash(), s.dropUnused())
}

// wantsOf says what a holder wants of a version, and what others do.
func (s *Store) wantsOf(key, holder string) (own, others []Want, err error) {
	wants, err := s.wants()
	if err != nil {
		return nil, nil, err
	}
	if f := s.fetching(key); f != nil {
		wants = append(wants, f.later...)
	}
	for _, w := range wants {
		switch {
		case w.Key != key:
		case w.Holder == holder:
			own = append(own, w)
		default:
			others = append(others, w)
		}
	}
	return own, others, nil
}

// takeAway throws away a version and what was fetched of it, unless somebody uses it or
// fetches it. Nobody takes a lease meanwhile.
func (s *Store) takeAway(v *Version) error {
	unlock, err := s.lockLeases()
	if err != nil {
		return err
	}
	defer unlock()
	holders, err := s.Holders(v.Key)
	if err != nil {
		return err
	}
	if len(holders) > 0 {
		return &InUseError{Model: v.Manifest.URI, Holders: holders}
	}
	if s.fetching(v.Key) != nil {
		return fmt.Errorf("cannot remove the model: %w; end that first", &FetchingError{Key: v.Key, Model: v.Manifest.URI})
	}
	for _, path := range []string{s.version(v.Key), s.staging(v.Key)} {
		if err := s.throwAway(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot remove %s: %w", v.Manifest.URI, err)
		}
	}
	return nil
}

// dropUnmarked throws away what has no mark, and so is no version, unless an instance
// still reads it.
func (s *Store) dropUnmarked() error {
	entries, err := os.ReadDir(filepath.Join(s.dir, modelsDir))
	if err != nil {
		return fmt.Errorf("cannot look for what is no model: %w", err)
	}
	for _, e := range entries {
		path := s.version(e.Name())
		if _, err := os.Lstat(filepath.Join(path, markFile)); !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		holders, err := s.Holders(e.Name())
		if err == nil && len(holders) == 0 {
			err = s.throwAway(path)
		}
		if err != nil {
			return fmt.Errorf("cannot throw away %s, which has no mark: %w", path, err)
		}
	}
	return nil
}

// throwAway takes a folder out of what is served by one rename. emptyTrash frees
// its room. Nothing is made for it, for which a full disk would have no room.
func (s *Store) throwAway(path string) error {
	if err := os.Rename(path, filepath.Join(s.dir, stagingDir, trashPrefix+rand.Text())); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

const trashPrefix = "trash-"

func (s *Store) emptyTrash() error {
	left, err := filepath.Glob(filepath.Join(s.dir, stagingDir, trashPrefix+"*"))
	if err != nil {
		return fmt.Errorf("cannot look for what was thrown away: %w", err)
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("cannot free the room of what was removed: %w", err)
		}
	}
	return nil
}

// dropUnused removes the blobs that no version links to and that no fetch counts on.
func (s *Store) dropUnused() error {
	counted := map[string]bool{}
	for f := range s.pending {
		for hash := range f.have {
			counted[hash] = true
		}
		for hash := range f.mends {
			counted[hash] = true
		}
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, blobsDir))
	if err != nil {
		return fmt.Errorf("cannot look for files that no model uses: %w", err)
	}
	for _, e := range entries {
		var stat unix.Stat_t
		path := s.blob(e.Name())
		if err := unix.Lstat(path, &stat); err != nil {
			return fmt.Errorf("cannot look at %s: %w", path, err)
		}
		if stat.Nlink > 1 || counted[e.Name()] {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("cannot remove a file that no model uses: %w", err)
		}
	}
	return nil
}
