// Package modelstore keeps models in a folder. Each file is there once, under its
// hash. Each version of a model is a folder of links to these files, with a manifest
// that is written last. One process owns the store and changes it; other processes
// read it. The store's state is what is on the disk and nothing else.
//
//	blobs/HASH                   a file, which never changes
//	models/KEY/files/…           the files of one version by their names, linked to blobs
//	models/KEY/manifest.json     the mark: without it the version does not exist
//	kept/KEY/…                   files that others have put into a version's folder
//	staging/KEY/…                the files fetched so far of a version, with its manifest
//	staging/trash-…              files that are being removed
//	leases/…                     the leases, a file for each
//	wants/…                      the wants, a file for each
//	proofs/…                     who may read private models, a file for each
//	lock                         held by the owner
//	.hotseat-model-store         makes the folder a store
//
// The store removes only what it has written. It knows its own entries by their names and
// kinds, and leaves all others alone.
package modelstore

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher"
)

// The folders of a store.
const (
	blobsDir   = "blobs"
	modelsDir  = "models"
	filesDir   = "files"
	keptDir    = "kept"
	stagingDir = "staging"
	leasesDir  = "leases"
	wantsDir   = "wants"
	treeDir    = "tree" // in a staging folder: the version before it is published
	markFile   = "manifest.json"
	lockFile   = "lock"
)

// blobTime is the modification time of each blob. A later write changes that time, so
// the store notices it without reading the file.
var blobTime = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)

// Store is a model store that this process owns. Its methods may be called from any
// goroutine.
type Store struct {
	Reader
	limit     int64
	retention Retention
	lock      *os.File
	note      func(text string)
	hasLinks  bool // hard links; without them each version has its own copies of its files

	mu      sync.Mutex
	pending map[*Fetch]bool // admitted, and neither published nor given up
}

// Reader reads a model store, which another process may own.
type Reader struct {
	dir  string
	root *os.Root // the folder; nil: it is opened for each change
}

// Options of a Store.
type Options struct {
	Dir   string
	Limit int64 // how many bytes all files may take together; 0: all that the disk has
	// Retention applies to models whose wants name none; empty: Keep.
	Retention Retention
	// Note is told in a sentence what Open has changed that people should know; nil: nobody is.
	Note func(text string)
}

// LockedError says that another process owns the folder.
type LockedError struct {
	Dir   string
	Owner string // as "process 12 on node-1"; see [owner]
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("cannot change the model store %s: %s owns it; wait until that process has ended, or choose another folder", e.Dir, e.Owner)
}

// Read makes a reader of a store. A missing folder is an empty store.
func Read(dir string) (*Reader, error) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return nil, fmt.Errorf("cannot read the model store: %s is not a folder", dir)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the model store: %w", err)
	}
	return &Reader{dir: dir}, nil
}

// Open makes this process the owner of a store, and makes the folder a store if it is
// missing or empty; see Mark. It repairs what an owner left that ended in the middle of a change. Open does not
// wait: the error is a *LockedError when another process owns the store.
func Open(o Options) (*Store, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot open the model store: %w", err)
	}
	if err := Mark(dir); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot open the model store: %w", err)
	}
	r := Reader{dir: dir, root: root}
	lock, err := r.lockFolder()
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	s := &Store{Reader: r, limit: o.Limit, retention: o.Retention, note: o.Note, lock: lock, pending: map[*Fetch]bool{}}
	if err := s.repair(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// lockFolder makes the folders of the store and locks it. The lock lasts for as long as any
// process has the returned file open.
func (r *Reader) lockFolder() (*os.File, error) {
	for _, name := range []string{blobsDir, modelsDir, stagingDir, leasesDir, wantsDir} {
		if err := r.makeFolder(filepath.Join(r.dir, name)); err != nil {
			return nil, fmt.Errorf("cannot make the model store: %w", err)
		}
	}
	f, err := r.openFile(filepath.Join(r.dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the model store: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(&LockedError{Dir: r.dir, Owner: owner(f)}, f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot lock the model store: %w", err), f.Close())
	}
	noteOwner(f)
	return f, nil
}

// Lock returns the file by which this process owns the store. A child that inherits
// the open file is an owner too: the store is unlocked only when both have ended.
func (s *Store) Lock() *os.File { return s.lock }

// Close unlocks the store.
func (s *Store) Close() error {
	if err := errors.Join(s.lock.Close(), s.root.Close()); err != nil {
		return fmt.Errorf("cannot unlock the model store: %w", err)
	}
	return nil
}

// repair finishes or undoes the changes that an earlier owner has not finished. It tries
// what the file system can do, empties the trash, removes records and files that nothing uses,
// and undoes unfinished publications.
func (s *Store) repair() error {
	s.emptyTrash()
	s.removeEarlierHub()
	for _, step := range []func() error{s.try, s.removeOldLeases, s.removeUnmarked, s.repairStaging, s.removeUnusedBlobs, s.removeOldWants} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// repairStaging undoes unfinished publications, and removes what finished ones have
// left.
func (s *Store) repairStaging() error {
	fetches, err := s.ownEntries(stagingDir, isVersion)
	if err != nil {
		return fmt.Errorf("cannot list the staging folders of the model store: %w", err)
	}
	for _, f := range fetches {
		if err := s.undoPublication(filepath.Join(s.dir, stagingDir, f.Name())); err != nil {
			return fmt.Errorf("cannot undo an unfinished publication: %w", err)
		}
	}
	return nil
}

// undoPublication removes the second name of each fetched file that is also a blob.
// If a version uses the blob, the blob stays; otherwise the fetched file stays.
func (s *Store) undoPublication(staging string) error {
	if err := s.removeAll(filepath.Join(staging, treeDir)); err != nil {
		return err
	}
	files, err := os.ReadDir(staging)
	if err != nil {
		return err
	}
	for _, f := range files {
		fetched, blob := filepath.Join(staging, f.Name()), s.blob(f.Name())
		if !sameFile(fetched, blob) {
			continue
		}
		spare := blob
		var stat unix.Stat_t
		if err := unix.Lstat(fetched, &stat); err != nil {
			return err
		}
		if stat.Nlink > 2 { // a version uses the blob
			spare = fetched
		}
		if err := s.remove(spare); err != nil {
			return err
		}
	}
	if s.isWhole(filepath.Base(staging)) { // the version was published
		return s.throwAway(staging)
	}
	return s.removeIfEmpty(staging)
}

// removeIfEmpty removes a staging folder that exists and has no fetched bytes.
func (s *Store) removeIfEmpty(staging string) error {
	files, err := os.ReadDir(staging)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil || len(files) > 1 || len(files) == 1 && files[0].Name() != markFile {
		return err
	}
	return s.throwAway(staging)
}

// Used returns how many bytes the files of the store take. Each file counts once, by
// whatever names it is there: versions have copies where there are no hard links.
func (r *Reader) Used() (int64, error) {
	blobs, err := r.ownEntries(blobsDir, isBlob)
	if err != nil {
		return 0, fmt.Errorf("cannot count the bytes of the model store: %w", err)
	}
	files := map[uint64]int64{}
	for _, e := range blobs {
		if inode, size, ok := inodeOf(r.blob(e.Name())); ok {
			files[inode] = size
		}
	}
	versions, err := r.ownEntries(modelsDir, isVersion)
	if err != nil {
		return 0, fmt.Errorf("cannot count the bytes of the model store: %w", err)
	}
	for _, e := range versions {
		m, _ := r.manifest(e.Name()) // without it, the files are not known
		maps.Copy(files, r.inodes(e.Name(), &m))
	}
	var sum int64
	for _, size := range files {
		sum += size
	}
	return sum, nil
}

func (r *Reader) blob(hash string) string { return filepath.Join(r.dir, blobsDir, hash) }

// staging returns the folder that a version is fetched into.
func (r *Reader) staging(key string) string { return filepath.Join(r.dir, stagingDir, key) }

func (r *Reader) version(key string) string { return filepath.Join(r.dir, modelsDir, key) }

// Files returns the folder that has the files of a version by their names.
func (r *Reader) Files(key string) string { return filepath.Join(r.version(key), filesDir) }

// Dir returns the folder of the store.
func (r *Reader) Dir() string { return r.dir }

func bytesText(n int64) string { return launcher.BytesText(uint64(max(0, n))) }

// sameFile reports whether two names are those of one file.
func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}
