package modelstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// Fetch is a version that was admitted to the store and is being fetched. The store has
// promised room for its bytes. A fetch ends with Publish or GiveUp.
type Fetch struct {
	Evicted []Eviction // the versions that were evicted for it

	store         *Store
	bytes         int64 // promised
	staging       string
	have          map[string]bool  // blobs that it counts on
	damagedBlobs  map[string]int64 // bytes of blobs that are damaged, whose places its files take
	onlyWhileRoom bool             // it is only kept while there is room
	laterWants    []Want           // noted once it is known of which version they are
}

// ErrThere says that the whole version is in the store already.
var ErrThere = errors.New("the store has the whole model already")

// FetchingError says that a version is being fetched already.
type FetchingError struct{ Key, Model string }

func (e *FetchingError) Error() string { return e.Model + " is being fetched already" }

// Admit begins a fetch and promises the room for the files that the store lacks.
//
// If the version does not fit, Admit evicts versions that nobody keeps. It does not do
// so for a version that is itself kept only while there is room. Otherwise two such
// versions would evict each other again and again.
//
// The error is ErrThere when the whole version is in the store. It is a *CapacityError
// when the version does not fit beside all promised bytes; then nothing is evicted.
func (s *Store) Admit(m *fetchapi.Manifest, w Want) (*Fetch, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Revision != "" && s.isWhole(m.Key()) {
		return nil, ErrThere
	}
	f := &Fetch{store: s, have: map[string]bool{}, damagedBlobs: map[string]int64{}, staging: s.staging(m.Key()), onlyWhileRoom: !w.mayEvict()}
	blobs, err := s.blobs()
	if err != nil {
		return nil, err
	}
	counted := map[string]bool{}
	for _, file := range m.Files {
		switch {
		case blobs[file.SHA256] && checkFile(s.blob(file.SHA256), file.Size) == nil:
			f.have[file.SHA256] = true
		case file.SHA256 == "" || !counted[file.SHA256]:
			counted[file.SHA256] = true
			f.bytes += file.Size
			if info, err := os.Lstat(s.blob(file.SHA256)); blobs[file.SHA256] && err == nil {
				f.damagedBlobs[file.SHA256] = info.Size()
			}
		}
	}
	if s.fetching(m.Key()) != nil {
		return nil, &FetchingError{Key: m.Key(), Model: m.URI}
	}
	if m.Revision == "" {
		f.laterWants = []Want{w}
	}
	s.pending[f] = true // from here on, removeUnusedBlobs keeps the blobs that f needs
	if err := s.makeRoom(f, !f.onlyWhileRoom); err != nil {
		delete(s.pending, f)
		return nil, err
	}
	if err := f.makeStaging(m); err != nil {
		delete(s.pending, f)
		return nil, fmt.Errorf("cannot make the folder to fetch into: %w", err)
	}
	return f, nil
}

// fetching returns the pending fetch of a version; nil: there is none.
func (s *Store) fetching(key string) *Fetch {
	for f := range s.pending {
		if f.staging == s.staging(key) {
			return f
		}
	}
	return nil
}

// blobs returns the names of all blobs.
func (s *Store) blobs() (map[string]bool, error) {
	entries, err := s.ownEntries(blobsDir, isBlob)
	if err != nil {
		return nil, fmt.Errorf("cannot list the files of the model store: %w", err)
	}
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = true
	}
	return names, nil
}

// makeStaging makes the folder to fetch into, with the manifest of the version.
func (f *Fetch) makeStaging(m *fetchapi.Manifest) error {
	if err := os.MkdirAll(f.staging, 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(f.staging, markFile), text, 0o600)
}

// leftovers returns the staging folders of interrupted fetches, without f's own.
func (s *Store) leftovers(f *Fetch) []string {
	entries, _ := s.ownEntries(stagingDir, isVersion) // after an error, there is nothing to free
	var all []string
	for _, e := range entries {
		all = append(all, s.staging(e.Name()))
	}
	return slices.DeleteFunc(all, func(dir string) bool {
		for other := range s.pending {
			if other.staging == dir {
				return true
			}
		}
		return dir == f.staging
	})
}

// checkFits returns a *CapacityError when a fetch does not fit beside the bytes that
// are used and promised. left is how many bytes of interrupted fetches stay. freed is
// how many bytes more the disk will have free.
func (s *Store) checkFits(f *Fetch, left, freed int64) error {
	var pending, fetched int64 // bytes that are promised, and that are fetched of them
	mends := map[string]int64{}
	for other := range s.pending {
		maps.Copy(mends, other.damagedBlobs)
		fetched += folderBytes(other.staging)
		if other != f {
			pending += other.bytes
		}
	}
	used, err := s.Used()
	if err != nil {
		return err
	}
	used += left
	for _, bytes := range mends { // a damaged blob is removed when its new file is published
		used -= bytes
	}
	size, free, err := s.disk(s.dir)
	if err != nil {
		return err
	}
	limit, low := s.limit, 0
	if f.onlyWhileRoom && s.watermarks.isSet() {
		low = s.watermarks.Low
		limit, free = percentOf(low, limit), max(0, free-percentOf(100-low, size))
	}
	if s.limit > 0 && (f.bytes > limit || used+pending > limit-f.bytes) {
		return &CapacityError{Needed: f.bytes, Limit: limit, Used: used, Pending: pending, Low: low}
	}
	if free += fetched + freed; f.bytes > free-pending {
		return &CapacityError{Needed: f.bytes, Limit: free, Pending: pending, Disk: true, Low: low}
	}
	return nil
}

// folderBytes returns how many bytes were fetched into a folder.
func folderBytes(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() == markFile {
			return nil //nolint:nilerr // a file that cannot be read counts as empty
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// Staging returns the folder to fetch into. The caller writes each missing file there,
// whole and synced, under its hash. Other files in the folder help to resume.
func (f *Fetch) Staging() string { return f.staging }

// Have returns the hashes of the files that need not be fetched.
func (f *Fetch) Have() []string { return slices.Sorted(maps.Keys(f.have)) }

// GiveUp ends the fetch and its promise of room. Without drop, the fetched files stay,
// so that a later fetch can resume.
func (f *Fetch) GiveUp(drop bool) error {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	delete(f.store.pending, f)
	end := f.store.removeIfEmpty
	if drop {
		end = f.store.throwAway
	}
	if err := end(f.staging); err != nil {
		return fmt.Errorf("cannot free the room of an ended fetch: %w", err)
	}
	return nil
}

func writeSynced(path string, text []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(text); err != nil {
		return err
	}
	return errors.Join(letRead(path, 0o644), f.Sync())
}
