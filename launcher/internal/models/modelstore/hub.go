package modelstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// The folders of a model in a cache of the hub's own client.
const (
	hubPrefix    = "models--" // begins the name of a model's folder
	hubBlobs     = "blobs"
	hubSnapshots = "snapshots"
	hubRefs      = "refs"
)

// FromHub reports whether a version is from the hub.
func FromHub(m *fetchapi.Manifest) bool { return strings.HasPrefix(m.URI, modelref.HubScheme) }

// ExportToHub copies a whole version into a cache of the hub's own client, and returns the
// folder of its snapshot. Files that the cache has already stay as they are, except that
// the names of the version, such as branches, mean this version afterwards. It ends early
// when ctx ends.
func (r *Reader) ExportToHub(ctx context.Context, v *Version, cache string) (snapshot string, err error) {
	if !FromHub(&v.Manifest) {
		return "", fmt.Errorf("cannot export %s: only models from the Hugging Face hub have a place in its client's cache", v.Manifest.URI)
	}
	if v.Damage != nil {
		return "", &NotWholeError{Version: *v}
	}
	dir := filepath.Join(cache, hubPrefix+strings.ReplaceAll(strings.TrimPrefix(v.Manifest.URI, modelref.HubScheme), "/", "--"))
	snapshot = filepath.Join(dir, hubSnapshots, v.Manifest.Revision)
	for _, f := range v.Manifest.Files {
		if err := r.exportFile(ctx, v.Key, f, dir, snapshot); err != nil {
			return "", fmt.Errorf("cannot export %s of %s: %w", f.Path, v.Manifest.URI, err)
		}
	}
	for ref := range v.Refs() {
		if badRef := fetchapi.CheckRef(ref); badRef != nil || ref == v.Manifest.Revision { // an earlier release may have recorded any text
			continue
		}
		if err := writeRef(dir, ref, v.Manifest.Revision); err != nil {
			return "", fmt.Errorf("cannot export the name %s of %s: %w", ref, v.Manifest.URI, err)
		}
	}
	return snapshot, nil
}

// exportFile copies a file to its blob, and links to the blob from the snapshot.
func (r *Reader) exportFile(ctx context.Context, key string, f fetchapi.File, dir, snapshot string) error {
	name := f.SHA256 // the client names files by the hash that the hub tells
	if f.GitSHA1 != "" {
		name = f.GitSHA1
	}
	blob, link := filepath.Join(dir, hubBlobs, name), filepath.Join(snapshot, filepath.FromSlash(f.Path))
	for _, folder := range []string{filepath.Dir(blob), filepath.Dir(link)} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(blob); errors.Is(err, fs.ErrNotExist) {
		if err := r.copyTo(ctx, filepath.Join(r.Files(key), filepath.FromSlash(f.Path)), blob); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	err := os.Symlink(strings.Repeat("../", 2+strings.Count(f.Path, "/"))+hubBlobs+"/"+name, link)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// copyTo copies a file. It ends early when ctx ends. The copy gets its name when it is whole.
func (r *Reader) copyTo(ctx context.Context, path, to string) (err error) {
	from, err := r.openFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	part := to + "." + rand.Text() + ".incomplete"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if err = errors.Join(copyBlocks(ctx, f, from), f.Close()); err == nil {
		err = os.Rename(part, to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return nil
}

// writeRef writes which commit a name means.
func writeRef(dir, ref, commit string) error {
	path := filepath.Join(dir, hubRefs, filepath.FromSlash(ref))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(commit), 0o644)
}
