package modelstore

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// InUseError says that leases keep a version from being removed, and names their holders.
type InUseError struct {
	Model   string
	Holders []string
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("cannot remove %s: it is in use by %s; end its users first", e.Model, strings.Join(e.Holders, ", "))
}

// WantedError says that other holders want a version that a caller would remove.
type WantedError struct {
	Model   string
	Holders []string
}

func (e *WantedError) Error() string {
	return fmt.Sprintf("cannot remove %s: it is wanted by %s, and would be fetched again; remove its holders first", e.Model, strings.Join(e.Holders, ", "))
}

// Remove removes a version and its fetched files. It fails when the version has a lease
// or is being fetched. A version that other holders want stays: then Remove drops the
// wants of the named holder, or, if none is named, returns a *WantedError.
func (s *Store) Remove(key, holder string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	wants, err := s.wantsOf(key)
	if err != nil {
		return err
	}
	var own, others []Want
	for _, w := range wants {
		if w.Holder == holder {
			own = append(own, w)
		} else {
			others = append(others, w)
		}
	}
	v, there := s.Version(key)
	v.Wants = others
	switch fetch := s.fetching(key); {
	case !there: // the version may be wanted, but was never fetched
		return cmp.Or[error](s.removeWants(own), &NotFoundError{Dir: s.dir, Name: key})
	case len(others) > 0 && holder != "":
		if fetch != nil {
			fetch.laterWants = slices.DeleteFunc(fetch.laterWants, func(w Want) bool { return w.Holder == holder })
		}
		return s.removeWants(own)
	case len(others) > 0:
		return &WantedError{Model: v.Manifest.URI, Holders: v.WantedBy()}
	}
	if err := s.moveVersionToTrash(&v); err != nil {
		return err
	}
	s.emptyTrash()
	return errors.Join(s.removeWants(own), s.removeUnusedBlobs())
}

// wantsOf returns the wants of a version, also those that its fetch records later.
func (s *Store) wantsOf(key string) ([]Want, error) {
	wants, err := s.wants()
	if err != nil {
		return nil, err
	}
	if f := s.fetching(key); f != nil {
		wants = append(wants, f.laterWants...)
	}
	return slices.DeleteFunc(wants, func(w Want) bool { return w.Key != key }), nil
}

// moveVersionToTrash moves a version and its fetched files to the trash. It fails when
// the version has a lease or is being fetched. No lease can be taken meanwhile.
func (s *Store) moveVersionToTrash(v *Version) error {
	unlock, err := s.lockLeases()
	if err != nil {
		return err
	}
	defer unlock()
	holders, err := s.holdersNow(v.Key)
	if err != nil {
		return err
	}
	if len(holders) > 0 {
		return &InUseError{Model: v.Manifest.URI, Holders: holders}
	}
	if s.fetching(v.Key) != nil {
		return fmt.Errorf("cannot remove the model: %w; cancel that pull first", &FetchingError{Key: v.Key, Model: v.Manifest.URI})
	}
	for _, err := range []error{s.discard(v.Key), s.moveToTrash(s.staging(v.Key))} {
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot remove %s: %w", v.Manifest.URI, err)
		}
	}
	return nil
}

// discard moves a version's folder to the trash, without the files of others in it.
func (s *Store) discard(key string) error {
	if err := s.keepOthers(key); err != nil {
		return err
	}
	return s.moveToTrash(s.version(key))
}

// removeUnmarked moves folders without a mark, which are not versions, to the trash. It
// spares a folder on which an instance has a lease.
func (s *Store) removeUnmarked() error {
	entries, err := s.ownEntries(modelsDir, isVersion)
	if err != nil {
		return fmt.Errorf("cannot look for folders without a mark: %w", err)
	}
	for _, e := range entries {
		path := s.version(e.Name())
		if _, err := os.Lstat(filepath.Join(path, markFile)); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		holders, err := s.holdersNow(e.Name())
		if err == nil && len(holders) == 0 {
			err = s.discard(e.Name())
		}
		if err != nil {
			return fmt.Errorf("cannot remove %s, which has no mark: %w", path, err)
		}
	}
	s.emptyTrash() // so that nothing counts as a name of a blob
	return nil
}

// moveToTrash takes a folder out of the served ones by one rename, and emptyTrash frees
// its room later. It makes no new folder, since a full disk would have no room for one.
//
// The lower layers of overlayfs have folders that cannot be renamed, as in a container whose
// image has models. Such a folder is removed in place, its mark first.
func (s *Store) moveToTrash(path string) error {
	err := s.rename(path, s.trash())
	if errors.Is(err, syscall.EXDEV) {
		if err = s.removeFile(filepath.Join(path, markFile)); err == nil {
			_ = s.removeAll(path) // what is left has no mark, and is removed later
		}
	}
	if err != nil {
		return err
	}
	return s.syncDir(filepath.Dir(path))
}

const trashPrefix = "trash-"

// emptyTrash frees the room of what was removed. A folder that cannot be removed now stays
// in the trash, and the next call tries again: on NFS, for example, a file may be open somewhere.
func (s *Store) emptyTrash() {
	entries, _ := s.ownEntries(stagingDir, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), trashPrefix) })
	for _, e := range entries {
		_ = s.removeAll(filepath.Join(s.dir, stagingDir, e.Name()))
	}
}

// throwAway removes a folder, if it is there, and frees its room as far as that can be done.
func (s *Store) throwAway(path string) error {
	if err := s.moveToTrash(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.emptyTrash()
	return nil
}

// removeUnusedBlobs removes the blobs that no version has and no fetch needs. If a version
// was copied without its links, its blob is one copy too many.
func (s *Store) removeUnusedBlobs() error {
	needed := map[string]bool{}
	for f := range s.pending {
		maps.Copy(needed, f.have)
		for hash := range f.damagedBlobs {
			needed[hash] = true
		}
	}
	unnamed, err := s.unnamedBlobs()
	if err != nil {
		return err
	}
	entries, err := s.ownEntries(blobsDir, isBlob)
	if err != nil {
		return fmt.Errorf("cannot list the files of the model store: %w", err)
	}
	for _, e := range entries {
		var stat unix.Stat_t
		path := s.blob(e.Name())
		if err := unix.Lstat(path, &stat); err != nil {
			return fmt.Errorf("cannot look at %s: %w", path, err)
		}
		if stat.Nlink > 1 && !unnamed(e.Name()) || needed[e.Name()] {
			continue
		}
		if err := s.remove(path); err != nil && !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EBUSY) { // these are tried again
			return fmt.Errorf("cannot remove a file that no model uses: %w", err)
		}
	}
	return nil
}

// unnamedBlobs returns a function that reports whether no published version names a blob. It
// says of none that it is so while a manifest cannot be read. The number of links does not
// always tell: overlayfs counts those that a layer below has.
func (s *Store) unnamedBlobs() (func(hash string) bool, error) {
	versions, err := s.ownEntries(modelsDir, isVersion)
	if err != nil {
		return nil, fmt.Errorf("cannot list the model store: %w", err)
	}
	named, known := map[string]bool{}, true
	for _, e := range versions {
		m, err := s.manifest(e.Name())
		known = known && err == nil
		for _, f := range m.Files {
			named[f.SHA256] = true
		}
	}
	return func(hash string) bool { return known && !named[hash] }, nil
}
