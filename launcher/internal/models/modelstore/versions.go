package modelstore

import (
	"cmp"
	"context"
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

	left      bool // it has no wants, and is private
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
			v.left = r.leftPrivate(&v, wants)
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
	m, err := r.manifest(key)
	if v.Manifest, v.Damage = m, err; err == nil {
		v.Damage = r.findDamage(key, &v.Manifest)
	}
	return v
}

// manifest reads the manifest of a published version.
func (r *Reader) manifest(key string) (m fetchapi.Manifest, err error) {
	text, err := os.ReadFile(filepath.Join(r.version(key), markFile))
	if err != nil {
		return m, fmt.Errorf("cannot read its manifest: %w", err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("its manifest is damaged: %w", err)
	}
	return m, nil
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
	if err := checkManifest(key, m); err != nil {
		return err
	}
	for _, f := range m.Files {
		if err := checkFile(filepath.Join(r.Files(key), f.Path), f.Size); err != nil {
			return fmt.Errorf("its file %s %w", f.Path, err)
		}
	}
	return nil
}

// checkManifest checks the manifest of a version.
func checkManifest(key string, m *fetchapi.Manifest) error {
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
		return errChanged
	}
	return nil
}

// errChanged is the damage of a file that has another time than when it was published.
var errChanged = errors.New("was changed after its publication, or copied with another time (launcher models --verify reads it)")

// Verify reads every file of a version, and returns an error that names the damaged
// ones. If this process may, it also changes the modification time of a damaged file.
// Then the version is not served any more, and a pull fetches the file again. A file that
// is right and has another time, as in a copy of a store, gets its own time again.
func (r *Reader) Verify(key string) error {
	return r.verify(context.Background(), key, func(error) bool { return true })
}

// Mend reads those files of a version that have another time than when they were published,
// and gives their own times to those that are right. It ends early when ctx ends.
func (s *Store) Mend(ctx context.Context, key string) error {
	return s.verify(ctx, key, func(damage error) bool { return damage != nil })
}

// verify verifies the files for which reads returns true, given their damage.
func (r *Reader) verify(ctx context.Context, key string, reads func(damage error) bool) error {
	v, ok := r.Version(key)
	if !ok {
		return &NotFoundError{Dir: r.dir, Name: key}
	}
	if _, partial := errors.AsType[*PartialError](v.Damage); partial || v.Damage != nil && checkManifest(key, &v.Manifest) != nil {
		return v.Damage
	}
	var wrong []error
	for _, f := range v.Manifest.Files {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(wrong, err)...)
		}
		path := filepath.Join(r.Files(key), filepath.FromSlash(f.Path))
		damage := checkFile(path, f.Size)
		if !reads(damage) {
			continue
		}
		if damage == nil || errors.Is(damage, errChanged) {
			damage = r.verifyFile(ctx, path, f)
		}
		if damage != nil {
			wrong = append(wrong, fmt.Errorf("its file %s %w", f.Path, damage))
		}
	}
	return errors.Join(wrong...)
}

// verifyFile reads a file. It gives a right one the time of blobs, and a wrong one another,
// if this process may.
func (r *Reader) verifyFile(ctx context.Context, path string, f fetchapi.File) error {
	before, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("cannot be examined: %w", err)
	}
	hash, err := r.hashFile(ctx, path)
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	if hash != f.SHA256 {
		now := time.Now()
		_ = r.within(func(root *os.Root) error { return root.Chtimes(r.name(path), now, now) }) // fails for a process that may only read
		return fmt.Errorf("has the sha256 %s, but should have %s", hash, f.SHA256)
	}
	if now, err := os.Lstat(path); err != nil || !now.ModTime().Equal(before.ModTime()) {
		return errors.New("is being changed")
	}
	if before.ModTime().Equal(blobTime) {
		return nil
	}
	if err := r.seal(path); err != nil {
		return fmt.Errorf("is right, but has another time than when it was published: %w", err)
	}
	return nil
}

// hashFile returns the sha256 of a file. It ends early when ctx ends.
func (r *Reader) hashFile(ctx context.Context, path string) (string, error) {
	f, err := r.openFile(path, os.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if err := copyBlocks(ctx, h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// copyBlocks copies to the end of what it reads. It looks for the end of ctx at each block.
func copyBlocks(ctx context.Context, to io.Writer, from io.Reader) error {
	const block = 4 << 20
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := io.CopyN(to, from, block)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
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
