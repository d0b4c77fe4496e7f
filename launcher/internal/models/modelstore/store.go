// Package modelstore keeps models in a folder: each file once, by its hash, and
// each version of a model as a folder of links to those, with a manifest that is
// written last. One process owns the folder and changes it; others read. What the
// store has is what is on the disk, nothing else is remembered.
//
//	blobs/HASH                   a file; nobody writes to it any more
//	models/KEY/files/…           the files of one version by their names, linked to blobs
//	models/KEY/manifest.json     the mark: without it there is no such version
//	hub/models--ORG--NAME/…      versions from the hub as its own client keeps them
//	staging/KEY/…                what has been fetched of a version, with its manifest
//	staging/trash-…              what is being thrown away
//	leases/…                     who uses which version, a file for each
//	wants/…                      who asked for which version, and by which name, a file for each
//	lock                         held by the owner
package modelstore

import (
	"errors"
	"fmt"
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
	hubDir     = "hub"
	stagingDir = "staging"
	leasesDir  = "leases"
	wantsDir   = "wants"
	treeDir    = "tree" // in the folder of a fetch: the version before it is published
	markFile   = "manifest.json"
	lockFile   = "lock"
)

// untouched is the modification time of each blob. Who writes to one afterwards
// changes it, by which that is seen without reading the file.
var untouched = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)

// Store is a folder that this process owns. Its methods may be called at any time
// from any goroutine.
type Store struct {
	Reader
	limit     int64
	retention Retention
	marks     Watermarks
	lock      *os.File
	disk      func(dir string) (size, free int64, err error)

	mu      sync.Mutex
	pending map[*Fetch]bool // admitted, neither published nor given up
}

// Reader looks at a folder that this process need not own.
type Reader struct{ dir string }

// Options are those of a store.
type Options struct {
	Dir   string
	Limit int64 // bytes that all files may take together; 0: as many as the disk has
	// Retention is that of models of which nobody has said any; empty: Keep.
	Retention Retention
	Marks     Watermarks
}

// LockedError says that another process owns the folder.
type LockedError struct{ Dir string }

func (e *LockedError) Error() string {
	return fmt.Sprintf("cannot change the model store %s: another process owns it; wait until that has ended, or choose another folder", e.Dir)
}

// Read makes a reader of a folder. A folder that is not there has no models.
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

// Open takes a folder, making it when it is missing, and mends what an end in the
// middle of something has left. It does not wait: the error is a *LockedError when
// another process owns the folder.
func Open(o Options) (*Store, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot open the model store: %w", err)
	}
	for _, name := range []string{"", blobsDir, modelsDir, hubDir, stagingDir, leasesDir, wantsDir} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return nil, fmt.Errorf("cannot make the model store: %w", err)
		}
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{Reader: Reader{dir: dir}, limit: o.Limit, retention: o.Retention, marks: o.Marks, lock: lock, disk: disk, pending: map[*Fetch]bool{}}
	if err := s.mend(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

// lockFolder locks the folder for as long as any process has the file open that it
// gives.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the model store: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(&LockedError{Dir: dir}, f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot lock the model store: %w", err), f.Close())
	}
	return f, nil
}

// Lock is the file by which this process owns the folder. A child that is given it
// as an open file is an owner, too: the folder is free when both have ended.
func (s *Store) Lock() *os.File { return s.lock }

// Close gives the folder free.
func (s *Store) Close() error {
	if err := s.lock.Close(); err != nil {
		return fmt.Errorf("cannot unlock the model store: %w", err)
	}
	return nil
}

// mend finishes or undoes what an earlier owner did not come to the end of: what
// was thrown away is gone, what the hub's layout shows is what there is, what was
// not published waits to be, and what no version uses is gone.
func (s *Store) mend() error {
	for _, step := range []func() error{s.emptyTrash, s.dropOldLeases, s.dropUnmarked, s.mendHub, s.mendStaging, s.dropUnused, s.dropOldWants} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// mendStaging undoes publications that were not finished, and tidies up after those
// that were.
func (s *Store) mendStaging() error {
	fetches, err := os.ReadDir(filepath.Join(s.dir, stagingDir))
	if err != nil {
		return fmt.Errorf("cannot look for what was not published: %w", err)
	}
	for _, f := range fetches {
		if !f.IsDir() {
			continue
		}
		if err := s.unpublish(filepath.Join(s.dir, stagingDir, f.Name())); err != nil {
			return fmt.Errorf("cannot take back what was not published: %w", err)
		}
	}
	return nil
}

// unpublish leaves a file of a fetch under one name: as a blob, where a version has
// it, else where it was fetched to.
func (s *Store) unpublish(staging string) error {
	if err := os.RemoveAll(filepath.Join(staging, treeDir)); err != nil {
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
		if stat.Nlink > 2 { // a version has it, too
			spare = fetched
		}
		if err := os.Remove(spare); err != nil {
			return err
		}
	}
	if s.whole(filepath.Base(staging)) { // it was published
		return os.RemoveAll(staging)
	}
	return dropEmpty(staging)
}

// dropEmpty removes the folder of a fetch that has brought nothing, if there is one.
func dropEmpty(staging string) error {
	files, err := os.ReadDir(staging)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil || len(files) > 1 || len(files) == 1 && files[0].Name() != markFile {
		return err
	}
	return os.RemoveAll(staging)
}

// Used is how many bytes the files of the store take, each counted once.
func (r *Reader) Used() (int64, error) {
	entries, err := os.ReadDir(filepath.Join(r.dir, blobsDir))
	if err != nil {
		return 0, fmt.Errorf("cannot count the bytes of the model store: %w", err)
	}
	var sum int64
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("cannot count the bytes of the model store: %w", err)
		}
		sum += info.Size()
	}
	return sum, nil
}

func (r *Reader) blob(hash string) string { return filepath.Join(r.dir, blobsDir, hash) }

// staging is where a version is fetched to.
func (r *Reader) staging(key string) string { return filepath.Join(r.dir, stagingDir, key) }

func (r *Reader) version(key string) string { return filepath.Join(r.dir, modelsDir, key) }

// Files is the folder that has the files of a version by their names.
func (r *Reader) Files(key string) string { return filepath.Join(r.version(key), filesDir) }

// HubCache is the folder in which the hub's own client finds versions from the hub.
func (r *Reader) HubCache() string { return filepath.Join(r.dir, hubDir) }

func text(n int64) string { return launcher.BytesText(uint64(max(0, n))) }

// syncDir makes what was renamed into a folder outlive the machine.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
