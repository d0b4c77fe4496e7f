package modelstore

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// Publish makes the version one that is served, by one rename, and ends the fetch.
// The manifest has the hash of each file. Whoever fetched has checked those. Where the
// store is above its high watermark then, others go, see Evicted.
func (f *Fetch) Publish(m *fetchapi.Manifest) (Version, error) {
	s := f.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := f.publish(m); err != nil {
		return Version{}, fmt.Errorf("cannot publish %s: %w", m.URI, err)
	}
	delete(s.pending, f)
	if err := errors.Join(f.wantPublished(m), os.RemoveAll(f.staging), s.mendHubFor(m.URI), s.emptyTrash(), s.dropUnused()); err != nil {
		return Version{}, err
	}
	v, _ := s.Version(m.Key())
	return v, errors.Join(v.Damage, s.giveWay(f, v.Key))
}

// wantPublished notes who wants the version, where only now can be told which one it is:
// who has it fetched, and who has joined that fetch.
func (f *Fetch) wantPublished(m *fetchapi.Manifest) error {
	announced := filepath.Base(f.staging)
	if announced == m.Key() {
		return nil
	}
	all, err := f.store.wants()
	if err != nil {
		return err
	}
	joined := slices.DeleteFunc(all, func(w Want) bool { return w.Key != announced })
	for _, w := range append(joined, f.later...) {
		w.Key = m.Key()
		if err := f.store.want(w); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fetch) publish(m *fetchapi.Manifest) error {
	s := f.store
	if err := m.Check(); err != nil {
		return err
	}
	for _, file := range m.Files {
		if file.SHA256 == "" {
			return fmt.Errorf("%s has no hash", file.Path)
		}
	}
	if s.whole(m.Key()) {
		return nil // what could be told only after the fetch: the version was there
	}
	tree := filepath.Join(f.staging, treeDir)
	if err := f.build(tree, m); err != nil {
		return err
	}
	target := s.version(m.Key())
	if _, err := os.Lstat(target); err == nil { // damaged, or without its mark
		if err := s.throwAway(target); err != nil {
			return err
		}
	}
	if err := os.Rename(tree, target); err != nil {
		return err
	}
	return syncDir(filepath.Dir(target))
}

// build builds the folder of a version: its files, which become the store's, then the
// mark.
func (f *Fetch) build(tree string, m *fetchapi.Manifest) error {
	if err := os.RemoveAll(tree); err != nil {
		return err
	}
	folders, err := makeFolders(tree, m)
	if err != nil {
		return err
	}
	if err := f.take(tree, m); err != nil {
		return err
	}
	if err := syncDir(filepath.Join(f.store.dir, blobsDir)); err != nil {
		return err
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := writeSynced(filepath.Join(tree, markFile), text); err != nil {
		return err
	}
	for dir := range folders {
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// makeFolders makes those that the files of a version are in.
func makeFolders(tree string, m *fetchapi.Manifest) (folders map[string]bool, err error) {
	folders = map[string]bool{}
	for _, file := range m.Files {
		dir := filepath.Dir(treePath(tree, file))
		if folders[dir] {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		for ; len(dir) >= len(tree); dir = filepath.Dir(dir) {
			folders[dir] = true
		}
	}
	return folders, nil
}

// treePath is where a file of a version is.
func treePath(tree string, file fetchapi.File) string {
	return filepath.Join(tree, filesDir, filepath.FromSlash(file.Path))
}

// linkers is how many files are linked at once: each into two folders, which the kernel
// locks one by one.
const linkers = 2

// take makes the files blobs, and links these by the files' names. Those of one content
// come one after the other.
func (f *Fetch) take(tree string, m *fetchapi.Manifest) error {
	same := map[string][]fetchapi.File{}
	for _, file := range m.Files {
		same[file.SHA256] = append(same[file.SHA256], file)
	}
	var group errgroup.Group
	group.SetLimit(linkers)
	for hash, files := range same {
		group.Go(func() error {
			for _, file := range files {
				if err := f.takeBlob(file); err != nil {
					return err
				}
				if err := f.store.link(hash, treePath(tree, file)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// takeBlob makes a fetched file one of the store's, in place of one that is damaged.
// Who has that open keeps it as it is. The file stays where it was fetched to as
// well, so that an end before the version is published costs nothing.
func (f *Fetch) takeBlob(file fetchapi.File) error {
	blob := f.store.blob(file.SHA256)
	if f.have[file.SHA256] && checkFile(blob, file.Size) == nil {
		return nil
	}
	fetched := filepath.Join(f.staging, file.SHA256)
	info, err := os.Lstat(fetched)
	switch {
	case err != nil:
		return fmt.Errorf("%s was not fetched: %w", file.Path, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s was not fetched as a file", file.Path)
	case info.Size() != file.Size:
		return fmt.Errorf("%s was fetched with %d bytes and should have %d", file.Path, info.Size(), file.Size)
	}
	if err := os.Chmod(fetched, 0o444); err != nil {
		return err
	}
	if err := os.Chtimes(fetched, untouched, untouched); err != nil {
		return err
	}
	if err := os.Link(fetched, blob); !errors.Is(err, fs.ErrExist) {
		return err
	}
	if checkFile(blob, file.Size) == nil { // another version has brought it meanwhile
		return nil
	}
	if err := os.Remove(blob); err != nil {
		return err
	}
	return os.Link(fetched, blob)
}

// link gives a blob one more name. Of a file there are so many at most, 65,000 on ext4,
// and an empty one is in many models: then the blob is made anew, and the names that
// there are stay with the old one.
func (s *Store) link(hash, name string) error {
	err := os.Link(s.blob(hash), name)
	if !errors.Is(err, unix.EMLINK) {
		return err
	}
	fresh := filepath.Join(s.dir, stagingDir, trashPrefix+rand.Text())
	if err := copyBlob(s.blob(hash), fresh); err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	if err := os.Rename(fresh, s.blob(hash)); err != nil {
		return err
	}
	return os.Link(s.blob(hash), name)
}

// copyBlob makes a file that is as a blob is, and brings it to the disk.
func copyBlob(blob, to string) (err error) {
	from, err := os.Open(blob)
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, from); err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o444), os.Chtimes(to, untouched, untouched), f.Sync())
}
