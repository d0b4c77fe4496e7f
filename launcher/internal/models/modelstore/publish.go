package modelstore

import (
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

// Publish publishes the version by one rename, and ends the fetch. The manifest must
// have the hash of each file, and the fetcher must have checked the hashes.
func (f *Fetch) Publish(m *fetchapi.Manifest) (Version, error) {
	s := f.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := f.publish(m); err != nil {
		return Version{}, fmt.Errorf("cannot publish %s: %w", m.URI, err)
	}
	delete(s.pending, f)
	if err := errors.Join(f.wantPublished(m), f.wantProved(), s.throwAway(f.staging), s.removeUnusedBlobs()); err != nil {
		return Version{}, err
	}
	v, _ := s.Version(m.Key())
	return v, v.Damage
}

// wantPublished records the wants of a version whose key is known only after the fetch:
// those of the callers that began or joined the fetch.
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
	for _, w := range append(joined, f.laterWants...) {
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
			return fmt.Errorf("the manifest has no hash of %s", file.Path)
		}
	}
	if s.isWhole(m.Key()) {
		return nil // the key is known only after the fetch, and the version was there already
	}
	tree := filepath.Join(f.staging, treeDir)
	if err := f.build(tree, m); err != nil {
		return err
	}
	target := s.version(m.Key())
	if _, err := os.Lstat(target); err == nil { // a damaged version, or one without a mark
		if err := s.discard(m.Key()); err != nil {
			return err
		}
	}
	if err := s.rename(tree, target); err != nil {
		return err
	}
	return s.syncDir(filepath.Dir(target))
}

// build makes the folder of a version. It turns the fetched files into blobs, links
// them by their names, and writes the mark last.
func (f *Fetch) build(tree string, m *fetchapi.Manifest) error {
	if err := f.store.removeAll(tree); err != nil {
		return err
	}
	folders, err := f.store.makeFolders(tree, m)
	if err != nil {
		return err
	}
	if err := f.takeBlobs(tree, m); err != nil {
		return err
	}
	if err := f.store.syncDir(filepath.Join(f.store.dir, blobsDir)); err != nil {
		return err
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := f.store.writeSynced(filepath.Join(tree, markFile), text); err != nil {
		return err
	}
	for dir := range folders {
		if err := f.store.syncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// makeFolders makes the folders for the files of a version, and returns their paths.
func (s *Store) makeFolders(tree string, m *fetchapi.Manifest) (folders map[string]bool, err error) {
	folders = map[string]bool{}
	for _, file := range m.Files {
		dir := filepath.Dir(treePath(tree, file))
		if folders[dir] {
			continue
		}
		if err := s.makeFolder(dir); err != nil {
			return nil, err
		}
		for ; len(dir) >= len(tree); dir = filepath.Dir(dir) {
			folders[dir] = true
		}
	}
	return folders, nil
}

// treePath returns the path of a file in the folder of a version.
func treePath(tree string, file fetchapi.File) string {
	return filepath.Join(tree, filesDir, filepath.FromSlash(file.Path))
}

// linkWorkers is how many files are linked at once. More would not help: each file is
// linked into two folders, and the kernel locks a folder for each link.
const linkWorkers = 2

// takeBlobs turns the fetched files into blobs, and links the blobs by the files' names.
// Files of the same content are linked one after the other.
func (f *Fetch) takeBlobs(tree string, m *fetchapi.Manifest) error {
	same := map[string][]fetchapi.File{}
	for _, file := range m.Files {
		same[file.SHA256] = append(same[file.SHA256], file)
	}
	take := f.linkFiles
	if !f.store.hasLinks {
		take = f.moveFiles
	}
	var group errgroup.Group
	group.SetLimit(linkWorkers)
	for _, files := range same {
		group.Go(func() error { return take(tree, files) })
	}
	return group.Wait()
}

// linkFiles makes the files of one content links to their blob.
func (f *Fetch) linkFiles(tree string, files []fetchapi.File) error {
	for _, file := range files {
		if err := f.takeBlob(file); err != nil {
			return err
		}
		if err := f.store.link(file.SHA256, treePath(tree, file)); err != nil {
			return err
		}
	}
	return nil
}

// moveFiles is linkFiles for a file system without hard links: the last of the files is the
// fetched one, the others are copies. Nothing is a blob. If the process ends before the
// version is published, these files are fetched again.
func (f *Fetch) moveFiles(tree string, files []fetchapi.File) error {
	from, last := f.store.blob(files[0].SHA256), len(files)
	if !f.hasBlob(files[0]) {
		from, last = filepath.Join(f.staging, files[0].SHA256), len(files)-1
		if err := f.checkFetched(files[0]); err != nil {
			return err
		}
	}
	for n, file := range files {
		if n == last {
			return f.store.rename(from, treePath(tree, file))
		}
		if err := f.store.copyBlob(from, treePath(tree, file)); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fetch) hasBlob(file fetchapi.File) bool {
	return f.have[file.SHA256] && checkFile(f.store.blob(file.SHA256), file.Size) == nil
}

// checkFetched checks that a file was fetched, and gives it the mode and the time of blobs.
func (f *Fetch) checkFetched(file fetchapi.File) error {
	fetched := filepath.Join(f.staging, file.SHA256)
	info, err := os.Lstat(fetched)
	switch {
	case err != nil:
		return fmt.Errorf("%s was not fetched: %w", file.Path, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s was not fetched as a file", file.Path)
	case info.Size() != file.Size:
		return fmt.Errorf("%s was fetched with %d bytes, but should have %d", file.Path, info.Size(), file.Size)
	}
	return f.store.seal(fetched)
}

// takeBlob turns a fetched file into a blob, and replaces a damaged blob. A process
// that has the damaged blob open keeps it. The file also stays in the staging folder,
// so that nothing is lost if the process ends before the version is published.
func (f *Fetch) takeBlob(file fetchapi.File) error {
	if f.hasBlob(file) {
		return nil
	}
	if err := f.checkFetched(file); err != nil {
		return err
	}
	fetched, blob := filepath.Join(f.staging, file.SHA256), f.store.blob(file.SHA256)
	if err := f.store.hardLink(fetched, blob); !errors.Is(err, fs.ErrExist) {
		return err
	}
	if checkFile(blob, file.Size) == nil { // another fetch has made the blob meanwhile
		return nil
	}
	if err := f.store.remove(blob); err != nil {
		return err
	}
	return f.store.hardLink(fetched, blob)
}

// link gives a blob one more name. A file has a limited number of names, 65,000 on
// ext4, and an empty file is in many models. At the limit, link replaces the blob by a
// copy; the existing names keep the old file.
func (s *Store) link(hash, name string) error {
	err := s.hardLink(s.blob(hash), name)
	if !errors.Is(err, unix.EMLINK) {
		return err
	}
	fresh := s.trash()
	if err := s.copyBlob(s.blob(hash), fresh); err != nil {
		return errors.Join(err, s.remove(fresh))
	}
	if err := s.rename(fresh, s.blob(hash)); err != nil {
		return err
	}
	return s.hardLink(s.blob(hash), name)
}

// copyBlob copies a blob to a new file, and syncs it to the disk.
func (s *Store) copyBlob(blob, to string) (err error) {
	from, err := s.openFile(blob, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := s.openFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, from); err != nil {
		return err
	}
	return errors.Join(s.seal(to), f.Sync())
}
