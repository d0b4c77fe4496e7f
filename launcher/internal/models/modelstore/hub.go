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
	"time"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// hubFolder returns the name that the hub's client gives to the folder of a model.
func hubFolder(m *fetchapi.Manifest) string {
	return "models--" + strings.ReplaceAll(strings.TrimPrefix(m.URI, modelref.HubScheme), "/", "--")
}

// etag returns the name that the hub's client gives to a file.
func etag(f fetchapi.File) string {
	if f.GitSHA1 != "" {
		return f.GitSHA1
	}
	return f.SHA256
}

// rebuildHub makes the hub's layout show exactly the whole versions from the hub. The
// layout is derived from the store, so rebuildHub replaces what is wrong in it. It
// leaves out a model that cannot be shown, and tries again the next time.
func (s *Store) rebuildHub() error { return s.rebuildHubFor("") }

// rebuildHubFor rebuilds the layout after a change to versions from an address. It
// fails when it cannot show the model of that address.
func (s *Store) rebuildHubFor(uri string) error {
	if uri != "" && !strings.HasPrefix(uri, modelref.HubScheme) {
		return nil
	}
	all, err := s.versions(modelsDir)
	if err != nil {
		return err
	}
	models := map[string][]Version{}
	for _, v := range all {
		if v.Damage == nil && strings.HasPrefix(v.Manifest.URI, modelref.HubScheme) {
			name := hubFolder(&v.Manifest)
			models[name] = append(models[name], v)
		}
	}
	entries, err := os.ReadDir(s.HubCache())
	if err != nil {
		return fmt.Errorf("cannot list the models in the hub's layout: %w", err)
	}
	for _, e := range entries {
		if len(models[e.Name()]) == 0 {
			if err := s.moveToTrash(filepath.Join(s.HubCache(), e.Name())); err != nil {
				return fmt.Errorf("cannot remove a model from the hub's layout: %w", err)
			}
		}
	}
	for name, versions := range models {
		err := s.showModel(filepath.Join(s.HubCache(), name), versions)
		if err != nil && versions[0].Manifest.URI == uri {
			return fmt.Errorf("cannot show %s in the hub's layout: %w", name, err)
		}
	}
	return s.emptyTrash()
}

// showModel makes the folder of one model: links to the blobs, a snapshot for each
// commit, and last the refs.
func (s *Store) showModel(dir string, versions []Version) error {
	snapshots, blobs := map[string]map[string]fetchapi.File{}, map[string]string{}
	for _, v := range versions {
		files := snapshots[v.Manifest.Revision] // the files of all selections of the commit
		if files == nil {
			files = map[string]fetchapi.File{}
			snapshots[v.Manifest.Revision] = files
		}
		for _, f := range v.Manifest.Files {
			blobs[etag(f)], files[f.Path] = f.SHA256, f
		}
	}
	for _, name := range []string{"blobs", "snapshots", "refs"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	if err := s.showBlobs(filepath.Join(dir, "blobs"), blobs); err != nil {
		return err
	}
	if err := removeOthers(filepath.Join(dir, "snapshots"), func(name string) bool { return snapshots[name] != nil }); err != nil {
		return err
	}
	for commit, files := range snapshots {
		if err := s.showSnapshot(filepath.Join(dir, "snapshots", commit), files); err != nil {
			return err
		}
	}
	return s.showRefs(filepath.Join(dir, "refs"), refsOf(versions))
}

// refsOf returns which commit each ref means: the commit that was wanted by it last. If
// one ref would be a folder of another, only the later ref is shown.
func refsOf(versions []Version) map[string]string {
	type naming struct {
		ref, commit string
		since       time.Time
	}
	var all []naming
	for _, v := range versions {
		for ref, since := range v.Refs() {
			if ref != v.Manifest.Revision && fetchapi.CheckRef(ref) == nil {
				all = append(all, naming{ref, v.Manifest.Revision, since})
			}
		}
	}
	slices.SortFunc(all, func(a, b naming) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.ref, b.ref)) })
	refs := map[string]string{}
	for _, n := range all {
		maps.DeleteFunc(refs, func(other, _ string) bool {
			return strings.HasPrefix(other, n.ref+"/") || strings.HasPrefix(n.ref, other+"/")
		})
		refs[n.ref] = n.commit
	}
	return refs
}

// showRefs makes the files of the refs. A ref may have slashes.
func (s *Store) showRefs(dir string, refs map[string]string) error {
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil && refs[name] == "" {
			err = os.Remove(path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for ref, commit := range refs {
		if err := s.replaceText(filepath.Join(dir, ref), commit); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) showBlobs(dir string, blobs map[string]string) error {
	if err := removeOthers(dir, func(name string) bool { return blobs[name] != "" }); err != nil {
		return err
	}
	for name, hash := range blobs {
		shown := filepath.Join(dir, name)
		if sameFile(shown, s.blob(hash)) {
			continue
		}
		if err := os.Remove(shown); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := s.link(hash, shown); err != nil {
			return err
		}
	}
	return nil
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// showSnapshot makes the snapshot of a commit by one rename.
func (s *Store) showSnapshot(target string, files map[string]fetchapi.File) error {
	if snapshotShows(target, files) {
		return nil
	}
	tree, err := os.MkdirTemp(filepath.Join(s.dir, stagingDir), trashPrefix)
	if err != nil {
		return err
	}
	if err := os.Chmod(tree, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(tree, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(linkText(f), path); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(target); err == nil {
		if err := s.moveToTrash(target); err != nil {
			return err
		}
	}
	return os.Rename(tree, target)
}

// linkText returns the link from a file of a snapshot to its blob.
func linkText(f fetchapi.File) string {
	return strings.Repeat("../", 2+strings.Count(f.Path, "/")) + "blobs/" + etag(f)
}

// snapshotShows reports whether a snapshot has exactly these files.
func snapshotShows(snapshot string, files map[string]fetchapi.File) bool {
	for _, f := range files {
		if text, err := os.Readlink(filepath.Join(snapshot, filepath.FromSlash(f.Path))); err != nil || text != linkText(f) {
			return false
		}
	}
	there := 0
	err := filepath.WalkDir(snapshot, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			there++
		}
		return err
	})
	return err == nil && there == len(files)
}

// replaceText replaces a short file by one rename, unless it has that text already.
func (s *Store) replaceText(path, text string) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == text {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() { // an earlier ref had this name as its folder
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	staged := filepath.Join(s.dir, stagingDir, trashPrefix+"ref")
	if err := writeSynced(staged, []byte(text)); err != nil {
		return err
	}
	return os.Rename(staged, path)
}

// removeOthers removes the entries of a folder that are not wanted.
func removeOthers(dir string, wanted func(name string) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !wanted(e.Name()) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// FromHub reports whether a version is from the hub, and therefore in the hub's layout.
func FromHub(m *fetchapi.Manifest) bool { return strings.HasPrefix(m.URI, modelref.HubScheme) }
