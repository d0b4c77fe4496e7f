// Package compiled keeps what engines compile when they start, so that the next start
// of the same need not: a folder for each kind of engine and node, which engines are
// given as VLLM_CACHE_ROOT.
//
//	KEY/kind.json    which kind
//	KEY/cache/…      what engines keep: vLLM below it, with inductor's and Triton's caches
//	KEY/started/…    one file for each model and arguments with which an engine has started
//	KEY/lock         held, shared, by each launcher whose engines use the folder
//	trash-…          what is being unpacked or thrown away
//
// What is there is read from the disk; nothing is remembered.
package compiled

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

const (
	kindFile    = "kind.json"
	cacheDir    = "cache"
	startedDir  = "started"
	lockFile    = "lock"
	trashPrefix = "trash-"
)

// Options of a Cache. Everything is required.
type Options struct {
	Dir   string // folder of the caches of all kinds
	Kind  launcherapi.CompileKind
	Limit int64 // bytes that all may have before those go that nobody uses; 0: none goes
	// Starting says whether an engine of this launcher is starting now, and may write
	// to the cache.
	Starting func() bool
}

// Cache is that of a launcher's own engines, beside those of other kinds. Its methods
// may be called from any goroutine.
type Cache struct {
	opts Options
	key  string
	root *os.Root // the folder of the caches of all kinds; all changes are within it
	lock *os.File

	importing sync.Mutex // held while an archive is unpacked
}

var (
	keyPattern  = regexp.MustCompile(`^[0-9a-f]{32}$`)
	namePattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
	// trashPattern is that of what rand.Text gives.
	trashPattern = regexp.MustCompile(`^` + trashPrefix + `[A-Z2-7]{26}$`)
)

// Open makes the cache of a kind where it is missing, and keeps others from removing it
// until Close.
func Open(o Options) (*Cache, error) {
	if o.Kind.GPUs == nil {
		o.Kind.GPUs = []string{}
	}
	c := &Cache{opts: o, key: keyOf(o.Kind)}
	text, err := json.MarshalIndent(o.Kind, "", "  ")
	if err != nil {
		return nil, err
	}
	if c.root, err = openFolder(o.Dir); err == nil {
		err = c.prepare(append(text, '\n'))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot make the compile cache: %w", err), c.Close())
	}
	for _, left := range []string{"incoming", "incoming.lock"} { // by an import of an earlier release
		_ = c.root.RemoveAll(path.Join(c.key, left)) // it takes room, and harms nobody
	}
	c.touch()
	return c, nil
}

// Close lets others remove the cache.
func (c *Cache) Close() error {
	var errs []error
	if c.lock != nil {
		errs = append(errs, c.lock.Close())
	}
	if c.root != nil {
		errs = append(errs, c.root.Close())
	}
	return errors.Join(errs...)
}

// hold locks a file, making it. The file is nil when it was removed before it was
// locked.
func (c *Cache) hold(name string, how int) (*os.File, error) {
	f, err := c.openFile(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	locked, err := f.Stat()
	there, gone := c.root.Lstat(name)
	if err == nil && gone == nil && os.SameFile(locked, there) {
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}

func (c *Cache) path(key string, more ...string) string {
	return filepath.Join(append([]string{c.opts.Dir, key}, more...)...)
}

// Env are the variables that have engines keep here what they compile. vLLM has its own
// graphs below the first; what else PyTorch and Triton compile would be in a temporary
// folder and in the home folder, which a container loses.
func (c *Cache) Env() []string {
	root := c.path(c.key, cacheDir)
	return []string{"VLLM_CACHE_ROOT=" + root, "TORCHINDUCTOR_CACHE_DIR=" + filepath.Join(root, "torchinductor"), "TRITON_CACHE_DIR=" + filepath.Join(root, "triton")}
}

// AddTo adds to an environment the variables that it has not; nil: the launcher keeps
// no cache.
func (c *Cache) AddTo(environ []string) []string {
	all := slices.Clone(environ)
	if c == nil {
		return all
	}
	for _, entry := range c.Env() {
		name, _, _ := strings.Cut(entry, "=")
		if !slices.ContainsFunc(environ, func(e string) bool { return strings.HasPrefix(e, name+"=") }) {
			all = append(all, entry)
		}
	}
	return all
}

// Keeps says whether an engine with this environment keeps here what it compiles.
func (c *Cache) Keeps(env []string) bool {
	return slices.Contains(env, c.Env()[0]) && !slices.Contains(env, "VLLM_DISABLE_COMPILE_CACHE=1")
}

// Has says whether an engine has started with what is called so.
func (c *Cache) Has(name string) bool {
	_, err := os.Stat(c.path(c.key, startedDir, name))
	return err == nil
}

// Note notes that an engine has started with what is called so, which is the SHA-256 of
// what decides what it compiles.
func (c *Cache) Note(name string) error {
	c.touch()
	if err := c.writeText(path.Join(c.key, startedDir, name), nil); err != nil {
		return fmt.Errorf("cannot record what an engine has compiled: %w", err)
	}
	return nil
}

// touch notes that the cache is used now, as the time of its lock.
func (c *Cache) touch() {
	in, err := c.root.Open(c.key)
	if err != nil {
		return // then it counts as used when it was made
	}
	defer in.Close()
	now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	_ = unix.UtimesNanoAt(int(in.Fd()), lockFile, now, unix.AT_SYMLINK_NOFOLLOW)
}

// List shows the caches of all kinds.
func (c *Cache) List() (launcherapi.CompileCacheList, error) {
	list := launcherapi.CompileCacheList{Folder: c.opts.Dir, LimitBytes: c.opts.Limit, Caches: []launcherapi.CompileCache{}}
	entries, err := os.ReadDir(c.opts.Dir)
	if err != nil {
		return list, launcher.Storagef("cannot list the compile caches: %w", err)
	}
	for _, e := range entries {
		if one, err := c.show(e.Name()); err == nil {
			list.Caches = append(list.Caches, one)
			list.UsedBytes += one.Bytes
		}
	}
	slices.SortFunc(list.Caches, func(a, b launcherapi.CompileCache) int {
		if a.Own != b.Own {
			return cmp.Compare(fmt.Sprint(b.Own), fmt.Sprint(a.Own))
		}
		return b.LastUsed.Compare(a.LastUsed)
	})
	return list, nil
}

// show reads what one cache has. Its error says that there is no such cache.
func (c *Cache) show(key string) (launcherapi.CompileCache, error) {
	one := launcherapi.CompileCache{Key: key, Own: key == c.key, Path: c.path(key, cacheDir)}
	text, err := c.readKind(key)
	if err != nil || json.Unmarshal(text, &one.Kind) != nil {
		return one, c.notFound(key)
	}
	if info, err := os.Stat(c.path(key, lockFile)); err == nil {
		one.LastUsed = info.ModTime().UTC()
	}
	// Engines write and remove files meanwhile: what is not there any more does not count.
	_ = filepath.WalkDir(one.Path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil //nolint:nilerr // as said
		}
		if info, err := e.Info(); err == nil {
			one.Bytes += info.Size()
			one.Files++
		}
		return nil
	})
	started, _ := os.ReadDir(c.path(key, startedDir)) // likewise
	one.Starts = len(started)
	return one, nil
}

func (c *Cache) notFound(key string) error {
	return &launcher.Error{Code: launcherapi.CodeNotFound, Detail: fmt.Sprintf("there is no compile cache %q in %s", key, c.opts.Dir)}
}

// Remove removes a cache, and gives it as it was. That of the launcher's own engines is
// begun anew.
//
//	the cache                                  effect
//	is not there                               error, code not_found
//	own, while an engine is starting           error, code conflict
//	own                                        emptied
//	used by another launcher                   error, code conflict
//	any other                                  removed
func (c *Cache) Remove(key string) (launcherapi.CompileCache, error) {
	one, err := c.show(key)
	if err != nil {
		return one, err
	}
	if one.Own {
		if c.opts.Starting() {
			return one, launcher.Conflictf("an engine is starting, and may be writing to the compile cache %s: try again when it is awake", key)
		}
		return one, c.empty()
	}
	lock, err := c.hold(path.Join(key, lockFile), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return one, launcher.Conflictf("another launcher uses the compile cache %s: stop that launcher first", key)
	}
	if err == nil && lock != nil {
		defer lock.Close()
		err = c.discard(key)
	}
	if err != nil {
		return one, launcher.Storagef("cannot remove the compile cache %s: %w", key, err)
	}
	return one, nil
}

// empty begins the own cache anew.
func (c *Cache) empty() error {
	var err error
	for _, dir := range []string{startedDir, cacheDir} { // what is noted goes first
		name := path.Join(c.key, dir)
		err = errors.Join(err, c.discard(name), c.root.MkdirAll(name, 0o755))
	}
	if err != nil {
		return launcher.Storagef("cannot empty the compile cache: %w", err)
	}
	return nil
}

// discard removes a folder, which is gone at once. Nothing is made for that, for which a
// full disk would have no room.
func (c *Cache) discard(name string) error {
	trash, now := trashPrefix+rand.Text(), time.Now()
	_ = c.root.Chtimes(name, now, now) // see trashAge
	return errors.Join(c.root.Rename(name, trash), c.root.RemoveAll(trash))
}

// trashAge is how old trash must be for nobody to be unpacking or removing it still. The
// time of a folder is set when it is thrown away, and with each file that an import reads.
const trashAge = time.Hour

// Prune removes caches that no launcher uses, those that were used longest ago first,
// until all are within the limit, and what was left of earlier removals. It gives the
// keys of what it has removed, and how many bytes are beyond the limit all the same.
func (c *Cache) Prune() (removed []string, beyond int64, err error) {
	entries, _ := fs.ReadDir(c.root.FS(), ".") // List returns the error
	for _, e := range entries {
		if !e.IsDir() || !trashPattern.MatchString(e.Name()) {
			continue
		}
		if info, gone := e.Info(); gone == nil && time.Since(info.ModTime()) > trashAge {
			err = errors.Join(err, c.root.RemoveAll(e.Name()))
		}
	}
	list, listed := c.List()
	if listed != nil || c.opts.Limit == 0 {
		return nil, 0, errors.Join(err, listed)
	}
	used := list.UsedBytes
	for _, one := range slices.Backward(list.Caches) {
		if used <= c.opts.Limit || one.Own {
			break
		}
		switch _, refused := c.Remove(one.Key); launcher.CodeOf(refused) {
		case "":
			removed, used = append(removed, one.Key), used-one.Bytes
		case launcherapi.CodeConflict, launcherapi.CodeNotFound: // it stays, or somebody else was quicker
		default:
			err = errors.Join(err, refused)
		}
	}
	return removed, max(0, used-c.opts.Limit), err
}
