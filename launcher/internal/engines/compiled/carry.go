package compiled

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// A cache is copied to another node as a tar archive of its folder: kind.json, and the
// regular files of cache/ and started/. An export has kind.json last, so that one that was
// cut off has none. Such an archive can also be made by tar, which has it anywhere.

// Bounds of what is read from another node.
const (
	maxEntries = 500_000
	maxKind    = 1 << 20
)

// Export returns a function that writes an archive of a cache to a stream. The archive is
// incomplete if that function returns an error.
//
//	the cache                                  effect
//	is not there                               error, code not_found
//	own, while an engine is starting           error, code conflict: half of a file might be copied
//	any other                                  what it has now
func (c *Cache) Export(key string) (write func(io.Writer) error, err error) {
	one, err := c.show(key)
	if err != nil {
		return nil, err
	}
	if one.Own && c.opts.Starting() {
		return nil, launcher.Conflictf("an engine is starting, and may be writing to the compile cache %s: try again when it is awake", key)
	}
	return func(w io.Writer) error { return c.pack(key, w) }, nil
}

// pack writes the archive of a cache.
func (c *Cache) pack(key string, w io.Writer) error {
	root, err := c.root.OpenRoot(key)
	if err != nil {
		return err
	}
	defer root.Close()
	out := tar.NewWriter(w)
	for _, name := range []string{cacheDir, startedDir, kindFile} {
		err := fs.WalkDir(root.FS(), name, func(name string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				err = writeFile(out, root, name)
			}
			if errors.Is(err, fs.ErrNotExist) { // an engine has removed it meanwhile
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return out.Close()
}

// writeFile writes a file as it is when it is opened: engines replace files by renames.
func writeFile(out *tar.Writer, root *os.Root, name string) error {
	in, err := root.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size(), ModTime: info.ModTime(), Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.CopyN(out, in, info.Size())
	return err
}

// Import unpacks the archive of another node's cache: the files that the own cache has not.
// It puts no file into its place before it has read the archive to its end.
//
//	the archive                                      effect
//	for no key                                       error, code not_found
//	of another kind than the launcher's own          error, code conflict
//	cut off, without its kind, or with anything
//	but regular files in their places                error, code invalid
//	comes while another is being unpacked            error, code conflict: each would count on all the room
//	more than there is room for                      error, code storage_trouble
//	cut off between two files, behind its kind
//	(made by tar: an export has its kind last)       unpacked as far as it goes: nothing tells
//	whole                                            unpacked
func (c *Cache) Import(key string, r io.Reader) (launcherapi.CompileCache, error) {
	if key != c.key {
		if !keyPattern.MatchString(key) {
			return launcherapi.CompileCache{}, c.notFound(key)
		}
		return launcherapi.CompileCache{}, c.otherKind("the key " + key)
	}
	if !c.importing.TryLock() {
		return launcherapi.CompileCache{}, launcher.Conflictf("another compile cache is being imported: try again when that is done")
	}
	defer c.importing.Unlock()
	if err := c.unpack(r); err != nil {
		if launcher.CodeOf(err) == "" {
			err = launcher.Storagef("cannot import the compile cache: %w", err)
		}
		return launcherapi.CompileCache{}, err
	}
	return c.show(c.key)
}

func (c *Cache) otherKind(theirs string) error {
	own, _ := json.Marshal(c.opts.Kind) // texts alone
	return launcher.Conflictf("the compile cache is of another kind than this launcher's engines, which cannot use it: this launcher's is %s, for %s, and not %s", c.key, own, theirs)
}

// unpack unpacks an archive beside the caches, as trash, and then moves its files into the
// own cache. A launcher that is killed meanwhile leaves trash, which Prune removes.
func (c *Cache) unpack(r io.Reader) (err error) {
	room, err := c.room()
	if err != nil {
		return err
	}
	dir := trashPrefix + rand.Text()
	if err := c.root.Mkdir(dir, 0o755); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.root.RemoveAll(dir)) }()
	root, err := c.root.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	a := &archive{cache: c, tar: tar.NewReader(r), root: root, room: room}
	if err := a.read(); err != nil {
		return err
	}
	return c.take(dir, a.files)
}

// room is how many bytes may be unpacked: what is left of the limit, or of the disk.
func (c *Cache) room() (int64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(c.opts.Dir, &stat); err != nil {
		return 0, err
	}
	room := int64(stat.Bavail) * stat.Bsize
	if c.opts.Limit > 0 {
		list, err := c.List()
		if err != nil {
			return 0, err
		}
		room = min(room, c.opts.Limit-list.UsedBytes)
	}
	return room, nil
}

// archive is an archive that is being unpacked.
type archive struct {
	cache *Cache
	tar   *tar.Reader
	root  *os.Root // where it is unpacked
	room  int64
	files []entry

	hasKind bool // it has the kind of the cache, and that is this one's
}

// entry is a file of a cache.
type entry struct {
	name string // slash-separated, below the folder of the key
	when time.Time
}

func malformed(format string, args ...any) error {
	return launcher.Invalidf("body", "this is not the archive of a compile cache: "+format, args...)
}

// read unpacks the archive to its end.
func (a *archive) read() error {
	for n := 0; ; n++ {
		head, err := a.tar.Next()
		switch {
		case errors.Is(err, io.EOF) && a.hasKind:
			return nil
		case errors.Is(err, io.EOF):
			return malformed("it has no %s", kindFile)
		case err != nil:
			return malformed("it cannot be read to its end: %w", err)
		case n > maxEntries:
			return malformed("it has more than %d files", maxEntries)
		case head.Typeflag == tar.TypeDir:
		case head.Typeflag != tar.TypeReg:
			return malformed("%q is not a regular file", head.Name)
		default:
			if err := a.readFile(head); err != nil {
				return err
			}
		}
	}
}

func (a *archive) readFile(head *tar.Header) error {
	now := time.Now()
	if err := a.root.Chtimes(".", now, now); err != nil { // see trashAge
		return err
	}
	name := strings.TrimPrefix(head.Name, "./")
	switch folder, _, _ := strings.Cut(name, "/"); {
	case name == kindFile:
		return a.checkKind()
	case folder != cacheDir && folder != startedDir: // such as the lock, which tar finds in the folder
		return nil
	case !inPlace(name):
		return malformed("%q is not the name of a file of a cache", head.Name)
	}
	if a.room -= head.Size; a.room < 0 {
		return launcher.Storagef("there is no room for this compile cache: %s more are needed; raise compile_cache_limit, or free room on the disk", launcher.BytesText(uint64(-a.room)))
	}
	a.files = append(a.files, entry{name: name, when: head.ModTime})
	return a.unpackFile(name, head.ModTime)
}

// inPlace says whether a file may have a name: below cache, or a note in started.
func inPlace(name string) bool {
	if dir, note := path.Split(name); dir == startedDir+"/" {
		return namePattern.MatchString(note)
	}
	return fetchapi.CheckPath(name) == nil && strings.HasPrefix(name, cacheDir+"/")
}

func (a *archive) checkKind() error {
	text, err := io.ReadAll(io.LimitReader(a.tar, maxKind))
	var kind launcherapi.CompileKind
	if err == nil {
		err = json.Unmarshal(text, &kind)
	}
	if err != nil {
		return malformed("its %s cannot be read: %w", kindFile, err)
	}
	if keyOf(kind) != a.cache.key {
		return a.cache.otherKind(string(bytes.TrimSpace(text)))
	}
	a.hasKind = true
	return nil
}

// unpackFile writes one file. It fails if the archive has two of that name.
func (a *archive) unpackFile(name string, when time.Time) error {
	if err := a.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	out, err := a.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return malformed("%q comes twice", name)
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(out, a.tar)
	if closed := out.Close(); closed != nil {
		return errors.Join(err, closed)
	}
	if err != nil {
		if _, full := errors.AsType[*fs.PathError](err); full {
			return err
		}
		return malformed("%s: %w", name, err)
	}
	return a.root.Chtimes(name, when, when)
}

// take moves unpacked files into the own cache, each by a rename. A file
// that is there already stays: it has the same name because it is the same.
func (c *Cache) take(dir string, files []entry) error {
	slices.SortStableFunc(files, inOrder)
	for _, f := range files {
		from, to := path.Join(dir, f.name), path.Join(c.key, f.name)
		if _, err := c.root.Lstat(to); err == nil {
			continue
		}
		if err := c.root.MkdirAll(path.Dir(to), 0o755); err != nil {
			return err
		}
		if err := c.root.Rename(from, to); err != nil {
			return err
		}
	}
	return nil
}

// inOrder sorts the oldest file first and the notes last, so that an engine that starts
// meanwhile finds what an index names.
func inOrder(a, b entry) int {
	folder := func(e entry) string {
		name, _, _ := strings.Cut(e.name, "/")
		return name
	}
	return cmp.Or(cmp.Compare(folder(a), folder(b)), a.when.Compare(b.when)) // cache sorts before started
}
