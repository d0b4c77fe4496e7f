package modelstore

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// hubPrefix begins the name of a model's folder in the hub's layout.
const hubPrefix = "models--"

// hubFolder returns the name that the hub's client gives to the folder of a model.
func hubFolder(m *fetchapi.Manifest) string {
	return hubPrefix + strings.ReplaceAll(strings.TrimPrefix(m.URI, modelref.HubScheme), "/", "--")
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
//
// The hub's client may write to the layout, too. Each model's folder has a list of the
// files that the store has made there, and rebuildHub touches no other file.
func (s *Store) rebuildHub() error { return s.rebuildHubFor("") }

// rebuildHubFor rebuilds the layout after a change to versions from an address. It
// fails when it cannot show the model of that address.
func (s *Store) rebuildHubFor(uri string) error {
	if uri != "" && !strings.HasPrefix(uri, modelref.HubScheme) || !s.can.links || !s.can.symlinks {
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
	entries, err := s.ownEntries(hubDir, func(e fs.DirEntry) bool { return e.IsDir() && strings.HasPrefix(e.Name(), hubPrefix) })
	if err != nil {
		return fmt.Errorf("cannot list the models in the hub's layout: %w", err)
	}
	for _, e := range entries {
		if len(models[e.Name()]) == 0 {
			if err := s.showModel(filepath.Join(s.HubCache(), e.Name()), nil); err != nil {
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
	s.emptyTrash()
	return nil
}

// The folders of a model in the hub's layout, and the list of the files in them that the
// store has made.
const (
	shownBlobs     = "blobs"
	shownSnapshots = "snapshots"
	shownRefs      = "refs"
	shownList      = ".hotseat-files"
)

// shown is what the store shows of one model, by paths in the model's folder.
type shown struct {
	blobs map[string]string // the blob of each link to it, by its hash
	links map[string]string // the text of each symbolic link
	refs  map[string]string // the commit of each ref
}

func showing(versions []Version) shown {
	s := shown{blobs: map[string]string{}, links: map[string]string{}, refs: map[string]string{}}
	for _, v := range versions { // a snapshot has the files of all selections of the commit
		for _, f := range v.Manifest.Files {
			s.blobs[filepath.Join(shownBlobs, etag(f))] = f.SHA256
			s.links[filepath.Join(shownSnapshots, v.Manifest.Revision, filepath.FromSlash(f.Path))] = linkText(f)
		}
	}
	for ref, commit := range refsOf(versions) {
		s.refs[filepath.Join(shownRefs, filepath.FromSlash(ref))] = commit
	}
	return s
}

func (s *shown) has(path string) bool {
	return s.blobs[path] != "" || s.links[path] != "" || s.refs[path] != ""
}

func (s *shown) paths() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for _, kind := range []map[string]string{s.blobs, s.links, s.refs} {
			for path := range kind {
				if !yield(path) {
					return
				}
			}
		}
	})
}

// leave leaves a file of somebody else in its place.
func (s *shown) leave(path string) {
	for _, kind := range []map[string]string{s.blobs, s.links, s.refs} {
		delete(kind, path)
	}
}

// showModel makes the folder of one model: links to the blobs, a snapshot for each
// commit, and last the refs. Without versions, it removes what the store has made.
func (s *Store) showModel(dir string, versions []Version) error {
	made, err := madeIn(dir)
	if err != nil {
		return err
	}
	want := showing(versions)
	for _, path := range want.paths() {
		if info, err := os.Lstat(filepath.Join(dir, path)); err == nil && !info.IsDir() && !made[path] {
			want.leave(path)
		}
	}
	if err := s.writeList(dir, made, want.paths()); err != nil { // before anything is made
		return err
	}
	if err := removeMade(dir, made, &want); err != nil {
		return err
	}
	if err := s.makeShown(dir, &want); err != nil {
		return err
	}
	return s.writeList(dir, nil, want.paths())
}

func (s *Store) makeShown(dir string, want *shown) error {
	for path, hash := range want.blobs {
		if err := s.showBlob(filepath.Join(dir, path), hash); err != nil {
			return err
		}
	}
	snapshots := map[string]map[string]string{}
	for path, text := range want.links {
		commit, name, _ := strings.Cut(strings.TrimPrefix(path, shownSnapshots+"/"), "/")
		if snapshots[commit] == nil {
			snapshots[commit] = map[string]string{}
		}
		snapshots[commit][name] = text
	}
	for commit, links := range snapshots {
		if err := s.showSnapshot(filepath.Join(dir, shownSnapshots, commit), links); err != nil {
			return err
		}
	}
	for path, commit := range want.refs {
		if err := s.replaceText(filepath.Join(dir, path), commit); err != nil {
			return err
		}
	}
	return nil
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

// showBlob makes a hard link to a blob.
func (s *Store) showBlob(path, hash string) error {
	if sameFile(path, s.blob(hash)) {
		return nil
	}
	if err := removeFile(path); err != nil {
		return err
	}
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	return s.link(hash, path)
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// showSnapshot makes the links of a snapshot: all by one rename, unless there is such a
// folder already.
func (s *Store) showSnapshot(target string, links map[string]string) error {
	if _, err := os.Lstat(target); err == nil {
		return s.makeLinks(target, links)
	}
	tree, err := os.MkdirTemp(filepath.Join(s.dir, stagingDir), trashPrefix)
	if err != nil {
		return err
	}
	if err := letRead(tree, 0o755); err != nil {
		return err
	}
	if err := s.makeLinks(tree, links); err != nil {
		return err
	}
	if err := makeFolder(filepath.Dir(target)); err != nil {
		return err
	}
	return os.Rename(tree, target)
}

func (s *Store) makeLinks(dir string, links map[string]string) error {
	for name, text := range links {
		path := filepath.Join(dir, name)
		if is, err := os.Readlink(path); err == nil && is == text {
			continue
		}
		if err := removeFile(path); err != nil {
			return err
		}
		if err := makeFolder(filepath.Dir(path)); err != nil {
			return err
		}
		if err := os.Symlink(text, path); err != nil {
			return err
		}
	}
	return nil
}

// linkText returns the link from a file of a snapshot to its blob.
func linkText(f fetchapi.File) string {
	return strings.Repeat("../", 2+strings.Count(f.Path, "/")) + "blobs/" + etag(f)
}

// replaceText replaces a short file by one rename, unless it has that text already.
func (s *Store) replaceText(path, text string) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == text {
		return nil
	}
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	_ = unix.Rmdir(path) // an earlier ref may have had this name as its folder
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		return nil // it has refs of others
	}
	staged := filepath.Join(s.dir, stagingDir, trashPrefix+"ref")
	if err := writeSynced(staged, []byte(text)); err != nil {
		return err
	}
	return os.Rename(staged, path)
}

// removeFile removes a file, if it is there.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !isOthers(err) {
		return err
	}
	return nil
}

// FromHub reports whether a version is from the hub.
func FromHub(m *fetchapi.Manifest) bool { return strings.HasPrefix(m.URI, modelref.HubScheme) }

// InHubCache reports whether the hub's layout shows a version. Not every file system takes
// that layout.
func (r *Reader) InHubCache(m *fetchapi.Manifest) bool {
	if !FromHub(m) {
		return false
	}
	_, err := os.Lstat(filepath.Join(r.HubCache(), hubFolder(m), shownSnapshots, m.Revision))
	return err == nil
}
