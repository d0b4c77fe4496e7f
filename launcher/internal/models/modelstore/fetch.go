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
	Evicted   []Eviction // the versions that were evicted for it
	MustProve bool       // the source must let the caller read, before a file that is here is taken

	store        *Store
	bytes        int64 // promised
	staging      string
	have         map[string]bool  // blobs that it counts on
	damagedBlobs map[string]int64 // bytes of blobs that are damaged, whose places its files take
	laterWants   []Want           // noted once it is known of which version they are
	unproved     Want             // a want that is private only until the caller has proved its right; without a key: none
}

// ErrThere says that the whole version is in the store already.
var ErrThere = errors.New("the store has the whole model already")

// FetchingError says that a version is being fetched already.
type FetchingError struct{ Key, Model string }

func (e *FetchingError) Error() string { return e.Model + " is being fetched already" }

// Admit begins a fetch and promises the room for the files that the store lacks.
//
// If the version does not fit, Admit evicts versions that nobody keeps; see
// makesRoom.
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
	f := &Fetch{store: s, have: map[string]bool{}, damagedBlobs: map[string]int64{}, staging: s.staging(m.Key())}
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
	if f.MustProve, err = s.takesPrivate(f, m.Key()); err != nil {
		return nil, err
	}
	f.MustProve = f.MustProve || w.Private
	s.pending[f] = true // from here on, removeUnusedBlobs keeps the blobs that f needs
	if err := s.makeRoom(f, w.makesRoom()); err != nil {
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
	if err := f.store.root.MkdirAll(f.store.name(f.staging), 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return f.store.write(filepath.Join(f.staging, markFile), text, 0o600)
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
	free, err := freeOnDisk(s.dir)
	if err != nil {
		return err
	}
	if s.limit > 0 && (f.bytes > s.limit || used+pending > s.limit-f.bytes) {
		return &CapacityError{Needed: f.bytes, Limit: s.limit, Used: used, Pending: pending}
	}
	if free += fetched + freed; f.bytes > free-pending {
		return &CapacityError{Needed: f.bytes, Limit: free, Pending: pending, Disk: true}
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
