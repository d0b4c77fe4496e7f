package modelstore

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// Version is one version of a model as it is on the disk.
type Version struct {
	Key       string            `json:"id"`
	Manifest  fetchapi.Manifest `json:"manifest"`
	Published time.Time         `json:"published"` // when it was published; of a partial version: when its fetch last made a file
	LastUse   time.Time         `json:"last_use"`  // the last lease, release, want or publication
	Damage    error             `json:"-"`         // why it is not served; nil: it is whole
	Wants     []Want            `json:"-"`         // the oldest first
	Sub       string            `json:"-"`         // set by Wanted: the folder that the name means; empty: the whole version

	nameMoved bool // the ref by which it was fetched means another version now
}

// PartialError is the damage of a version that is not fetched completely.
type PartialError struct{ Fetched, Bytes int64 }

func (e *PartialError) Error() string {
	return fmt.Sprintf("%s of %s are fetched; a pull resumes from there", bytesText(e.Fetched), bytesText(e.Bytes))
}

// Versions lists the published and the partial versions, the oldest first.
func (r *Reader) Versions() ([]Version, error) { return r.versions(modelsDir, stagingDir) }

func (r *Reader) versions(dirs ...string) ([]Version, error) {
	keys := map[string]bool{}
	for _, dir := range dirs {
		entries, err := r.ownEntries(dir, isVersion)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("cannot list the model store: %w", err)
		}
		for _, e := range entries {
			keys[e.Name()] = true
		}
	}
	wants, err := r.wants()
	if err != nil {
		return nil, err
	}
	var all []Version
	for key := range keys {
		if v, ok := r.Version(key); ok {
			for _, w := range wants {
				switch {
				case w.Key == key:
					v.Wants = append(v.Wants, w)
					v.noteUse(w.Since)
				case w.URI == v.Manifest.URI && w.Ref == v.Manifest.Ref && w.SameSelection(v.Manifest.Selection):
					v.nameMoved = true // a want of this version by the same ref still counts, see Refs
				}
			}
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b Version) int {
		return cmp.Or(a.Published.Compare(b.Published), cmp.Compare(a.Key, b.Key))
	})
	return all, nil
}

// Version returns a version by its key, without its wants. A version without damage
// may be served: each file is there, has its size, and was not written to.
func (r *Reader) Version(key string) (v Version, found bool) {
	mark := filepath.Join(r.version(key), markFile)
	info, err := os.Lstat(mark)
	if err != nil || !info.Mode().IsRegular() {
		return r.partialVersion(key)
	}
	v = r.versionWithMark(key, info)
	if v.Damage != nil {
		if now, err := os.Lstat(mark); err != nil || !os.SameFile(info, now) { // the version was removed or published again meanwhile
			return r.Version(key)
		}
	}
	return v, true
}

// versionWithMark returns a version that has a mark.
func (r *Reader) versionWithMark(key string, mark fs.FileInfo) (v Version) {
	v.Key = key
	v.Published = mark.ModTime().UTC()
	v.noteUse(v.Published)
	if folder, err := os.Stat(r.version(key)); err == nil {
		v.noteUse(folder.ModTime().UTC()) // see User.use
	}
	text, err := os.ReadFile(filepath.Join(r.version(key), markFile))
	if err != nil {
		v.Damage = fmt.Errorf("cannot read its manifest: %w", err)
		return v
	}
	if err := json.Unmarshal(text, &v.Manifest); err != nil {
		v.Damage = fmt.Errorf("its manifest is damaged: %w", err)
		return v
	}
	v.Damage = r.findDamage(key, &v.Manifest)
	return v
}

// isWhole reports whether a version may be served.
func (r *Reader) isWhole(key string) bool {
	if _, err := os.Lstat(filepath.Join(r.version(key), markFile)); err != nil {
		return false // without counting the bytes that were fetched
	}
	v, ok := r.Version(key)
	return ok && v.Damage == nil
}

// noteUse records that a version was used at a time.
func (v *Version) noteUse(when time.Time) {
	if when.After(v.LastUse) {
		v.LastUse = when
	}
}

// partialVersion returns a version that is not fetched completely.
func (r *Reader) partialVersion(key string) (v Version, found bool) {
	staging := r.staging(key)
	mark, err := os.ReadFile(filepath.Join(staging, markFile))
	if err != nil || json.Unmarshal(mark, &v.Manifest) != nil || v.Manifest.Check() != nil || v.Manifest.Key() != key {
		return Version{}, false
	}
	if info, err := os.Stat(staging); err == nil {
		v.Published = info.ModTime().UTC()
	}
	fetched := folderBytes(staging)
	for _, f := range v.Manifest.Files {
		if f.SHA256 != "" && checkFile(r.blob(f.SHA256), f.Size) == nil {
			fetched += f.Size
		}
	}
	v.Key, v.Damage = key, &PartialError{Fetched: min(fetched, v.Manifest.Bytes()), Bytes: v.Manifest.Bytes()}
	return v, true
}

// findDamage returns what is wrong with the files of a version. It does not read
// them.
func (r *Reader) findDamage(key string, m *fetchapi.Manifest) error {
	if err := m.Check(); err != nil {
		return err
	}
	if m.Key() != key {
		return fmt.Errorf("its manifest is that of another version, %s", m.Key())
	}
	for _, f := range m.Files {
		if f.SHA256 == "" {
			return fmt.Errorf("its manifest has no hash of %s", f.Path)
		}
		if err := checkFile(filepath.Join(r.Files(key), f.Path), f.Size); err != nil {
			return fmt.Errorf("its file %s %w", f.Path, err)
		}
	}
	return nil
}

// checkFile checks, without reading the file, that it is as it was published.
func checkFile(path string, size int64) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("is missing")
	case err != nil:
		return fmt.Errorf("cannot be examined: %w", err)
	case !info.Mode().IsRegular():
		return errors.New("is no longer a regular file")
	case info.Size() != size:
		return fmt.Errorf("has %d bytes, but should have %d", info.Size(), size)
	case !info.ModTime().Equal(blobTime):
		return errors.New("was changed after its publication")
	}
	return nil
}

// Verify reads every file of a version, and returns an error that names the damaged
// ones. If this process may, it also changes the modification time of a damaged file.
// Then the version is not served any more, and a pull fetches the file again.
func (r *Reader) Verify(key string) error {
	v, ok := r.Version(key)
	if !ok {
		return &NotFoundError{Dir: r.dir, Name: key}
	}
	if v.Damage != nil {
		return v.Damage
	}
	var wrong []error
	for _, f := range v.Manifest.Files {
		hash, err := hashFile(filepath.Join(r.Files(key), f.Path))
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Errorf("cannot read its file %s: %w", f.Path, err))
		case hash != f.SHA256:
			now := time.Now()
			_ = os.Chtimes(filepath.Join(r.Files(key), f.Path), now, now) // fails for a process that may only read
			wrong = append(wrong, fmt.Errorf("its file %s has the sha256 %s, but should have %s", f.Path, hash, f.SHA256))
		}
	}
	return errors.Join(wrong...)
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Find returns the version that a person means. name is its key, at least the first
// eight characters of its key, or its address. The address needs the revision only
// when the store has several versions of the model.
func (r *Reader) Find(name string) (Version, error) {
	all, err := r.Versions()
	if err != nil {
		return Version{}, err
	}
	var found []Version
	for _, v := range all {
		if v.hasName(name) {
			found = append(found, v)
		}
	}
	switch len(found) {
	case 0:
		return Version{}, &NotFoundError{Dir: r.dir, Name: name}
	case 1:
		return found[0], nil
	}
	var keys []string
	for _, v := range found {
		keys = append(keys, v.Key)
	}
	return Version{}, fmt.Errorf("%q is ambiguous: it may be any of %s; give one of these ids", name, strings.Join(keys, ", "))
}

// NotFoundError says that the store has no such model.
type NotFoundError struct{ Dir, Name string }

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("there is no model %q in %s; launcher models lists the models", e.Name, e.Dir)
}

func (v *Version) hasName(name string) bool {
	const enough = 8
	if v.Key == name || len(name) >= enough && strings.HasPrefix(v.Key, name) {
		return true
	}
	revision, ours := modelref.Name{Model: name}.Of(v.Manifest.URI)
	return ours && (revision == "" || v.ref().Is(revision))
}
