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
	Published time.Time         `json:"published"` // since when it is there
	LastUse   time.Time         `json:"last_use"`  // when a lease on it was taken or given back last, or it was asked for; else when it came
	Damage    error             `json:"-"`         // why it is not served; nil: it is whole
	Wants     []Want            `json:"-"`         // the oldest first
	Sub       string            `json:"-"`         // of Wanted: the folder of the version that is meant; empty: all of it

	moved bool // the name by which it was fetched is wanted of another version
}

// PartialError is the damage of a version that was not fetched to its end.
type PartialError struct{ Fetched, Bytes int64 }

func (e *PartialError) Error() string {
	return fmt.Sprintf("%s of %s are fetched; a pull goes on from there", text(e.Fetched), text(e.Bytes))
}

// Versions lists what there is, the oldest first. A folder without its mark is no
// version.
func (r *Reader) Versions() ([]Version, error) { return r.versions(modelsDir, stagingDir) }

func (r *Reader) versions(dirs ...string) ([]Version, error) {
	keys := map[string]bool{}
	for _, dir := range dirs {
		entries, err := os.ReadDir(filepath.Join(r.dir, dir))
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
					v.used(w.Since)
				case w.URI == v.Manifest.URI && w.Ref == v.Manifest.Ref && w.SameSelection(v.Manifest.Selection):
					v.moved = true // unless somebody wants this, too, by that name
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

// Version gives a version by its key, without its wants. It is to be served when its damage is nil:
// each file is there, with its size, and was not written to.
func (r *Reader) Version(key string) (v Version, found bool) {
	mark := filepath.Join(r.version(key), markFile)
	info, err := os.Lstat(mark)
	if err != nil || !info.Mode().IsRegular() {
		return r.partial(key)
	}
	v = r.marked(key, info)
	if v.Damage != nil {
		if now, err := os.Lstat(mark); err != nil || !os.SameFile(info, now) { // it was removed, or mended, while it was looked at
			return r.Version(key)
		}
	}
	return v, true
}

// marked gives a version that has a mark.
func (r *Reader) marked(key string, mark fs.FileInfo) (v Version) {
	v.Key = key
	v.Published = mark.ModTime().UTC()
	v.used(v.Published)
	if folder, err := os.Stat(r.version(key)); err == nil {
		v.used(folder.ModTime().UTC()) // see User.use
	}
	text, err := os.ReadFile(filepath.Join(r.version(key), markFile))
	if err != nil {
		v.Damage = fmt.Errorf("its manifest cannot be read: %w", err)
		return v
	}
	if err := json.Unmarshal(text, &v.Manifest); err != nil {
		v.Damage = fmt.Errorf("its manifest is damaged: %w", err)
		return v
	}
	v.Damage = r.damage(key, &v.Manifest)
	return v
}

// whole says whether a version is to be served.
func (r *Reader) whole(key string) bool {
	if _, err := os.Lstat(filepath.Join(r.version(key), markFile)); err != nil {
		return false // and what was fetched of it need not be counted
	}
	v, ok := r.Version(key)
	return ok && v.Damage == nil
}

// used notes that a version was used then.
func (v *Version) used(when time.Time) {
	if when.After(v.LastUse) {
		v.LastUse = when
	}
}

// partial gives a version as far as it was fetched.
func (r *Reader) partial(key string) (v Version, found bool) {
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

// damage says what is wrong with the files of a version, as far as that can be seen
// without reading them.
func (r *Reader) damage(key string, m *fetchapi.Manifest) error {
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

// checkFile sees that a file is as it was published, without reading it.
func checkFile(path string, size int64) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("is missing")
	case err != nil:
		return fmt.Errorf("cannot be looked at: %w", err)
	case !info.Mode().IsRegular():
		return errors.New("is not a file any more")
	case info.Size() != size:
		return fmt.Errorf("has %d bytes and should have %d", info.Size(), size)
	case !info.ModTime().Equal(untouched):
		return errors.New("was written to")
	}
	return nil
}

// Verify reads every file of a version and says which are not what they should be.
// Where this process may, it has the disk say so, too: the file counts as written to
// from then on, so that the version is not served and the file is fetched again.
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
			_ = os.Chtimes(filepath.Join(r.Files(key), f.Path), now, now) // a user who may only read is told all the same
			wrong = append(wrong, fmt.Errorf("its file %s has the sha256 %s and should have %s", f.Path, hash, f.SHA256))
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

// Find gives the version that a person means: by its key or the first eight or more
// characters of that, or by its address with the revision or, where there is only
// one version, without.
func (r *Reader) Find(name string) (Version, error) {
	all, err := r.Versions()
	if err != nil {
		return Version{}, err
	}
	var found []Version
	for _, v := range all {
		if v.named(name) {
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
	return Version{}, fmt.Errorf("%q may be any of %s; say which", name, strings.Join(keys, ", "))
}

// NotFoundError says that the store has no such model.
type NotFoundError struct{ Dir, Name string }

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("there is no model %q in %s; launcher models lists what there is", e.Name, e.Dir)
}

func (v *Version) named(name string) bool {
	const enough = 8
	if v.Key == name || len(name) >= enough && strings.HasPrefix(v.Key, name) {
		return true
	}
	revision, ours := modelref.Name{Model: name}.Of(v.Manifest.URI)
	return ours && (revision == "" || v.ref().Is(revision))
}
