package compiled

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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

// A cache on its way to another node is a tar stream of regular files: kind.json; those
// of cache/ and of started/, each folder's oldest first; and manifest.json, which has the
// hash of each. Files that refer to others were written after these, and are published
// after them, so that who starts meanwhile finds what it is led to.

const manifestFile = "manifest.json"

// Bounds of what is read from another node.
const (
	maxEntries  = 500_000
	maxManifest = 256 << 20
	maxKind     = 1 << 20
)

// item is a file of a cache.
type item struct {
	name string // slash-separated, below the folder of the key
	size int64
	when time.Time
}

// export is a cache that can be written to a stream.
type export struct {
	cache *Cache
	key   string
	files []item
}

// Export lists what a cache has, and returns a function that writes the cache to a
// stream. The stream is incomplete if that function returns an error.
//
//	the cache                                  effect
//	is not there                               error, code not_found
//	own, while an engine is starting           error, code conflict: half of a file might be carried
//	any other                                  what it has now
func (c *Cache) Export(key string) (write func(io.Writer) error, err error) {
	one, err := c.show(key)
	if err != nil {
		return nil, err
	}
	if one.Own && c.opts.Starting() {
		return nil, launcher.Conflictf("an engine is starting, and may be writing to the compile cache %s: try again when it is awake", key)
	}
	e := &export{cache: c, key: key}
	root, err := os.OpenRoot(c.path(key))
	if err != nil {
		return nil, launcher.Storagef("cannot read the compile cache: %w", err)
	}
	defer root.Close()
	for _, dir := range []string{cacheDir, startedDir} {
		files, err := listFiles(root, dir)
		if err != nil {
			return nil, launcher.Storagef("cannot read the compile cache: %w", err)
		}
		e.files = append(e.files, files...)
	}
	return e.write, nil
}

// listFiles gives the regular files below a folder, the oldest first. What is gone
// meanwhile is left out.
func listFiles(root *os.Root, dir string) ([]item, error) {
	var all []item
	err := fs.WalkDir(root.FS(), dir, func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !entry.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			all = append(all, item{name: name, size: info.Size(), when: info.ModTime()})
		}
		return err
	})
	slices.SortStableFunc(all, func(a, b item) int { return cmp.Or(a.when.Compare(b.when), strings.Compare(a.name, b.name)) })
	return all, err
}

// write writes the stream.
func (e *export) write(w io.Writer) error {
	root, err := os.OpenRoot(e.cache.path(e.key))
	if err != nil {
		return err
	}
	defer root.Close()
	kind, err := root.ReadFile(kindFile)
	if err != nil {
		return err
	}
	out, manifest := tar.NewWriter(w), map[string]string{}
	if err := writeEntry(out, kindFile, kind); err != nil {
		return err
	}
	for _, f := range e.files {
		if manifest[f.name], err = writeFile(out, root, f); err != nil {
			return fmt.Errorf("cannot export %s: %w", f.name, err)
		}
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	return errors.Join(writeEntry(out, manifestFile, text), out.Close())
}

func writeEntry(out *tar.Writer, name string, content []byte) error {
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := out.Write(content)
	return err
}

// writeFile writes a file that nobody changes meanwhile, and gives its hash.
func writeFile(out *tar.Writer, root *os.Root, f item) (hash string, err error) {
	in, err := root.Open(f.name)
	if err != nil {
		return "", err
	}
	defer in.Close()
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644, Size: f.size, ModTime: f.when, Format: tar.FormatPAX}); err != nil {
		return "", err
	}
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(out, sum), in, f.size); err != nil {
		return "", err
	}
	after, err := in.Stat()
	if err == nil && (after.Size() != f.size || !after.ModTime().Equal(f.when)) {
		err = errors.New("it was changed during the export")
	}
	return hex.EncodeToString(sum.Sum(nil)), err
}

// Import takes in what another node's launcher has exported: files that the own cache
// has not. Nothing is published before all of it is here and is what it should be.
//
//	the stream                                       effect
//	for no key                                       error, code not_found
//	of another kind than the launcher's own          error, code conflict
//	while another is taken in                        error, code conflict
//	not whole, not as its manifest says, or with
//	anything but regular files in their places       error, code invalid
//	more than there is room for                      error, code storage_trouble
//	whole                                            published, file by file
func (c *Cache) Import(key string, r io.Reader) (launcherapi.CompileCache, error) {
	if key != c.key {
		if !keyPattern.MatchString(key) {
			return launcherapi.CompileCache{}, c.notFound(key)
		}
		return launcherapi.CompileCache{}, c.otherKind(key, nil)
	}
	turn, err := hold(c.path(c.key, incomingLock), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return launcherapi.CompileCache{}, launcher.Conflictf("another compile cache is being imported: try again when that is done")
	}
	if err == nil && turn != nil {
		defer turn.Close()
		err = c.takeIn(r)
	}
	if err != nil {
		if launcher.CodeOf(err) == "" {
			err = launcher.Storagef("cannot import the compile cache: %w", err)
		}
		return launcherapi.CompileCache{}, err
	}
	return c.show(c.key)
}

func (c *Cache) otherKind(key string, kind []byte) error {
	own, _ := json.Marshal(c.opts.Kind) // texts alone
	theirs := "the key " + key
	if kind != nil {
		theirs = string(bytes.TrimSpace(kind))
	}
	return launcher.Conflictf("the compile cache is of another kind than this launcher's engines, which cannot use it: this launcher's is %s, for %s, and not %s", c.key, own, theirs)
}

func (c *Cache) takeIn(r io.Reader) (err error) {
	room, err := c.room()
	if err != nil {
		return err
	}
	staging := c.path(c.key, incomingDir)
	if err := errors.Join(os.RemoveAll(staging), os.MkdirAll(staging, 0o755)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staging)) }()
	root, err := os.OpenRoot(c.path(c.key))
	if err != nil {
		return err
	}
	defer root.Close()
	in := &incoming{cache: c, tar: tar.NewReader(r), root: root, room: room, hashes: map[string]string{}}
	if err := in.read(); err != nil {
		return err
	}
	return in.publish()
}

// room is how many bytes may be taken in: what is left of the limit, or of the disk.
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

// incoming is a stream that is taken in.
type incoming struct {
	cache  *Cache
	tar    *tar.Reader
	root   *os.Root // of the key
	room   int64
	names  []string // in the order of the stream
	hashes map[string]string
}

func malformed(format string, args ...any) error {
	return launcher.Invalidf("body", "this is not a compile cache that a launcher has exported: "+format, args...)
}

// read reads the stream to its end into the folder incoming.
func (in *incoming) read() error {
	for n := 0; ; n++ {
		head, err := in.tar.Next()
		if err != nil {
			return malformed("it ends before its manifest: %w", err)
		}
		if head.Typeflag != tar.TypeReg || n > maxEntries {
			return malformed("%q is not a regular file, or one too many", head.Name)
		}
		switch {
		case n == 0 && head.Name == kindFile:
			err = in.checkKind()
		case n == 0:
			err = malformed("it begins with %q instead of %s", head.Name, kindFile)
		case head.Name == manifestFile:
			return in.checkManifest()
		default:
			err = in.readFile(head)
		}
		if err != nil {
			return err
		}
	}
}

func (in *incoming) checkKind() error {
	text, err := io.ReadAll(io.LimitReader(in.tar, maxKind))
	var kind launcherapi.CompileKind
	if err == nil {
		err = json.Unmarshal(text, &kind)
	}
	if err != nil {
		return malformed("its %s cannot be read: %w", kindFile, err)
	}
	if keyOf(kind) != in.cache.key {
		return in.cache.otherKind("", text)
	}
	return nil
}

// inPlace says whether a file may have a name: below cache, or a note in started.
func inPlace(name string) bool {
	if dir, note := path.Split(name); dir == startedDir+"/" {
		return namePattern.MatchString(note)
	}
	return fetchapi.CheckPath(name) == nil && strings.HasPrefix(name, cacheDir+"/")
}

func (in *incoming) readFile(head *tar.Header) error {
	if !inPlace(head.Name) || in.hashes[head.Name] != "" {
		return malformed("%q is not the name of a file of a cache, or comes twice", head.Name)
	}
	if in.room -= head.Size; in.room < 0 {
		return launcher.Storagef("there is no room for this compile cache: %s more are needed; raise compile_cache_limit, or free room on the disk", launcher.BytesText(uint64(-in.room)))
	}
	staged := path.Join(incomingDir, head.Name)
	if err := in.root.MkdirAll(path.Dir(staged), 0o755); err != nil {
		return err
	}
	out, err := in.root.OpenFile(staged, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, sum), in.tar)
	if closed := out.Close(); closed != nil {
		return errors.Join(err, closed)
	}
	if err != nil {
		if _, full := errors.AsType[*fs.PathError](err); full {
			return err
		}
		return malformed("%s: %w", head.Name, err)
	}
	in.names, in.hashes[head.Name] = append(in.names, head.Name), hex.EncodeToString(sum.Sum(nil))
	return in.root.Chtimes(staged, head.ModTime, head.ModTime)
}

// checkManifest compares what has come with what was sent. Nothing follows.
func (in *incoming) checkManifest() error {
	var sent map[string]string
	if err := json.NewDecoder(io.LimitReader(in.tar, maxManifest)).Decode(&sent); err != nil {
		return malformed("its %s cannot be read: %w", manifestFile, err)
	}
	for _, name := range in.names {
		if sent[name] != in.hashes[name] {
			return malformed("%s has other content than its manifest says", name)
		}
	}
	if len(sent) != len(in.names) {
		return malformed("only %d files of %d have come", len(in.names), len(sent))
	}
	if head, err := in.tar.Next(); !errors.Is(err, io.EOF) {
		return malformed("something follows %s: %v, %v", manifestFile, head, err)
	}
	return nil
}

// publish puts what has come in its place, each file by a rename. What is there already
// stays: engines may have it open, and it has the same name because it is the same.
func (in *incoming) publish() error {
	slices.SortStableFunc(in.names, func(a, b string) int { return cmp.Compare(isNote(a), isNote(b)) }) // the notes last
	for _, name := range in.names {
		if _, err := in.root.Lstat(name); err == nil {
			continue
		}
		if err := in.root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		if err := in.root.Rename(path.Join(incomingDir, name), name); err != nil {
			return err
		}
	}
	return nil
}

func isNote(name string) int {
	if strings.HasPrefix(name, startedDir+"/") {
		return 1
	}
	return 0
}
