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

// Fetch is a version on its way into the store: admitted, its bytes promised. It
// ends with Publish or GiveUp.
type Fetch struct {
	Evicted []Eviction // what had to go for it

	store   *Store
	bytes   int64 // promised
	staging string
	have    map[string]bool  // blobs that it counts on
	mends   map[string]int64 // bytes of blobs that are damaged, whose places its files take
	yields  bool             // it is only kept while there is room
	later   []Want           // noted once it is known of which version they are
}

// ErrThere says that nothing is to be fetched.
var ErrThere = errors.New("the model is there")

// FetchingError says that a version is on its way already.
type FetchingError struct{ Key, Model string }

func (e *FetchingError) Error() string { return e.Model + " is being fetched already" }

// Admit promises the room for a version that is wanted, less the files that are
// there. What lacks of it is made by removing versions that nobody keeps, unless this
// one is only kept itself while there is room: so no two of that kind take each
// other's place again and again. The error is ErrThere when the whole version is, and
// a *CapacityError when it does not fit together with all that has been promised and
// is not there yet; then nothing is removed.
func (s *Store) Admit(m *fetchapi.Manifest, w Want) (*Fetch, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Revision != "" && s.whole(m.Key()) {
		return nil, ErrThere
	}
	f := &Fetch{store: s, have: map[string]bool{}, mends: map[string]int64{}, staging: s.staging(m.Key()), yields: !w.evicts()}
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
				f.mends[file.SHA256] = info.Size()
			}
		}
	}
	if s.fetching(m.Key()) != nil {
		return nil, &FetchingError{Key: m.Key(), Model: m.URI}
	}
	if m.Revision == "" {
		f.later = []Want{w}
	}
	s.pending[f] = true // its blobs are counted on from here
	if err := s.makeRoom(f, !f.yields); err != nil {
		delete(s.pending, f)
		return nil, err
	}
	if err := f.begin(m); err != nil {
		delete(s.pending, f)
		return nil, fmt.Errorf("cannot make the folder to fetch into: %w", err)
	}
	return f, nil
}

// fetching is what brings a version; nil: nothing does.
func (s *Store) fetching(key string) *Fetch {
	for f := range s.pending {
		if f.staging == s.staging(key) {
			return f
		}
	}
	return nil
}

// blobs are the names of those that are there.
func (s *Store) blobs() (map[string]bool, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, blobsDir))
	if err != nil {
		return nil, fmt.Errorf("cannot look which files the model store has: %w", err)
	}
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = true
	}
	return names, nil
}

// begin makes the folder to fetch into, which says what is to come.
func (f *Fetch) begin(m *fetchapi.Manifest) error {
	if err := os.MkdirAll(f.staging, 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(f.staging, markFile), text, 0o600)
}

// leftovers are the folders of fetches that were broken off, other than f's own.
func (s *Store) leftovers(f *Fetch) []string {
	all, _ := filepath.Glob(filepath.Join(s.dir, stagingDir, "*")) // the pattern is right
	return slices.DeleteFunc(all, func(dir string) bool {
		for other := range s.pending {
			if other.staging == dir {
				return true
			}
		}
		return dir == f.staging
	})
}

// fits says whether a fetch fits beside what is there and promised, and beside so
// many bytes of what was broken off; freed is what the disk will have free besides.
func (s *Store) fits(f *Fetch, left, freed int64) error {
	var pending, fetched int64 // what is promised, and how much of it is on the disk
	mends := map[string]int64{}
	for other := range s.pending {
		maps.Copy(mends, other.mends)
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
	for _, bytes := range mends { // they go when what they should be is there
		used -= bytes
	}
	size, free, err := s.disk(s.dir)
	if err != nil {
		return err
	}
	limit, low := s.limit, 0
	if f.yields && s.marks.set() {
		low = s.marks.Low
		limit, free = part(low, limit), max(0, free-part(100-low, size))
	}
	if s.limit > 0 && (f.bytes > limit || used+pending > limit-f.bytes) {
		return &CapacityError{Needed: f.bytes, Limit: limit, Used: used, Pending: pending, Low: low}
	}
	if free += fetched + freed; f.bytes > free-pending {
		return &CapacityError{Needed: f.bytes, Limit: free, Pending: pending, Disk: true, Low: low}
	}
	return nil
}

// folderBytes is how much has been fetched to a folder.
func folderBytes(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() == markFile {
			return nil //nolint:nilerr // what cannot be counted counts nothing
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// Staging is the folder to fetch into: each file that is not there yet, whole and
// synced, under its hash. What else is in the folder helps to resume.
func (f *Fetch) Staging() string { return f.staging }

// Have are the hashes of files that need not be fetched.
func (f *Fetch) Have() []string { return slices.Sorted(maps.Keys(f.have)) }

// GiveUp ends the fetch, and gives its promise back. What was fetched stays to be
// resumed, unless it is to be dropped.
func (f *Fetch) GiveUp(drop bool) error {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	delete(f.store.pending, f)
	end := dropEmpty
	if drop {
		end = os.RemoveAll
	}
	if err := end(f.staging); err != nil {
		return fmt.Errorf("cannot give back the room of what was fetched: %w", err)
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
	return f.Sync()
}
