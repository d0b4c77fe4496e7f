package modelstore

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Retention says whether an unused model stays or may be evicted when another model
// needs its room.
type Retention string

// The retentions. An empty one means that a want names none.
const (
	Keep Retention = launcherapi.RetentionKeep // it stays
	LRU  Retention = launcherapi.RetentionLRU  // it may be evicted, the least recently used first
)

// Eviction is a version that was evicted because another one needed its room.
type Eviction struct {
	Version
	Bytes int64 // how many bytes became free
}

// makeRoom makes room for a fetch. First it removes the leftovers of interrupted
// fetches. If that is not enough and mayEvict is set, it also evicts versions that
// nobody keeps. If the fetch would not fit even then, makeRoom removes nothing.
func (s *Store) makeRoom(f *Fetch, mayEvict bool) error {
	leftovers := s.leftovers(f)
	var left int64
	for _, dir := range leftovers {
		left += folderBytes(dir)
	}
	err := s.checkFits(f, left, 0)
	if _, full := errors.AsType[*CapacityError](err); !full {
		return err
	}
	if err := s.removeUnusedBlobs(); err != nil {
		return err
	}
	err = s.checkFits(f, 0, left)
	if full, ok := errors.AsType[*CapacityError](err); ok {
		err = s.evict(f, left, full, mayEvict)
	}
	if err != nil {
		return err
	}
	for _, dir := range leftovers {
		if err := s.throwAway(dir); err != nil {
			return fmt.Errorf("cannot remove the leftovers of an interrupted fetch: %w", err)
		}
	}
	return s.checkFits(f, 0, 0)
}

// evict evicts as many versions as a fetch needs to fit, the least recently used first.
// left is how many bytes of leftovers are removed too. If the fetch would not fit, or
// mayEvict is not set, evict returns full, to which it adds the versions that stay. No
// lease can be taken meanwhile.
func (s *Store) evict(f *Fetch, left int64, full *CapacityError, mayEvict bool) error {
	unlock, err := s.lockLeases()
	if err != nil {
		return err
	}
	defer unlock()
	candidates, err := s.findEvictable()
	if err != nil {
		return err
	}
	enough := func(gone []Version) bool {
		freed := candidates.bytesFreedBy(gone)
		return s.checkFits(f, -freed, left+freed) == nil
	}
	full.Kept, full.ForLRU = candidates.kept, !mayEvict
	if !mayEvict || !enough(candidates.idle) {
		return full
	}
	if err := s.evictVersions(f, candidates, fewestEnough(candidates.idle, enough)); err != nil {
		return err
	}
	unlock()
	s.emptyTrash()
	return s.removeUnusedBlobs()
}

// evictVersions evicts versions, and records them in f.Evicted.
func (s *Store) evictVersions(f *Fetch, candidates *evictable, gone []Version) error {
	var freed int64
	for n, v := range gone {
		if err := s.discard(v.Key); err != nil {
			return fmt.Errorf("cannot remove %s to make room: %w", v.Manifest.URI, err)
		}
		before := freed
		freed = candidates.bytesFreedBy(gone[:n+1])
		f.Evicted = append(f.Evicted, Eviction{Version: v, Bytes: freed - before})
		if err := s.removeWants(v.Wants); err != nil {
			return err
		}
	}
	return nil
}

// fewestEnough returns the versions to evict. It takes versions from the beginning of
// all until they are enough, and then leaves out those that are not needed.
func fewestEnough(all []Version, enough func([]Version) bool) (gone []Version) {
	for _, v := range all {
		if gone = append(gone, v); enough(gone) {
			break
		}
	}
	for n := len(gone) - 2; n >= 0; n-- { // the last one is always needed
		if fewer := slices.Delete(slices.Clone(gone), n, n+1); enough(fewer) {
			gone = fewer
		}
	}
	return gone
}

// evictable says which versions may be evicted.
type evictable struct {
	idle  []Version                   // may be evicted; the least recently used first
	kept  []string                    // the versions that stay and who keeps them, in words
	users map[uint64]int              // how many versions and fetches use a file, by its inode
	files map[string]map[uint64]int64 // the sizes of the files of each version, by their inodes
}

// findEvictable finds the versions that may be evicted. The caller holds the lock of
// the leases.
func (s *Store) findEvictable() (*evictable, error) {
	all, err := s.Versions()
	if err != nil {
		return nil, err
	}
	candidates := &evictable{users: map[uint64]int{}, files: map[string]map[uint64]int64{}}
	for f := range s.pending {
		for _, hash := range slices.Concat(slices.Collect(maps.Keys(f.have)), slices.Collect(maps.Keys(f.damagedBlobs))) {
			if inode, _, ok := inodeOf(s.blob(hash)); ok {
				candidates.users[inode]++
			}
		}
	}
	for _, v := range all {
		if _, partial := errors.AsType[*PartialError](v.Damage); partial {
			continue // its files are leftovers or belong to a pending fetch
		}
		candidates.files[v.Key] = s.inodes(v.Key, &v.Manifest)
		for inode := range candidates.files[v.Key] {
			candidates.users[inode]++
		}
		why, err := s.whoKeeps(&v)
		if err != nil {
			return nil, err
		}
		switch retention := v.Retention(); {
		case why != "":
			candidates.kept = append(candidates.kept, fmt.Sprintf("%s (%s), %s", v.Manifest.URI, bytesText(v.Manifest.Bytes()), why))
		case retention == LRU || retention == "" && s.retention == LRU:
			candidates.idle = append(candidates.idle, v)
		}
	}
	slices.SortStableFunc(candidates.idle, func(a, b Version) int { return a.LastUse.Compare(b.LastUse) })
	return candidates, nil
}

// whoKeeps returns who keeps a version, in words; empty: nobody does.
func (s *Store) whoKeeps(v *Version) (why string, err error) {
	if s.fetching(v.Key) != nil {
		return "being fetched again", nil
	}
	holders, err := s.holdersNow(v.Key)
	if len(holders) > 0 || err != nil {
		return "in use by " + strings.Join(holders, ", "), err
	}
	var by []string
	for _, w := range v.Wants {
		holder := cmp.Or(w.Holder, "a person (launcher models keep, or a call without wanted_by)")
		if w.retention() == Keep && !slices.Contains(by, holder) {
			by = append(by, holder)
		}
	}
	if len(by) > 0 {
		why = "kept by " + strings.Join(by, ", ")
	}
	return why, nil
}

// inodes returns the sizes of the files of a version, by their inodes. For a file that it
// has lost, that of the blob counts.
func (r *Reader) inodes(key string, m *fetchapi.Manifest) map[uint64]int64 {
	all := map[uint64]int64{}
	for _, f := range m.Files {
		inode, size, ok := inodeOf(filepath.Join(r.Files(key), filepath.FromSlash(f.Path)))
		if !ok {
			inode, size, ok = inodeOf(r.blob(f.SHA256))
		}
		if ok {
			all[inode] = size
		}
	}
	return all
}

// inodeOf returns the inode and the size of a regular file.
func inodeOf(path string) (inode uint64, size int64, ok bool) {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, 0, false
	}
	return stat.Ino, stat.Size, true
}

// bytesFreedBy returns how many bytes become free when these versions are evicted: the
// files that no other version or fetch uses.
func (m *evictable) bytesFreedBy(gone []Version) (sum int64) {
	users := map[uint64]int{}
	for _, v := range gone {
		for inode, size := range m.files[v.Key] {
			if users[inode]++; users[inode] == m.users[inode] {
				sum += size
			}
		}
	}
	return sum
}

// CapacityError says that a model does not fit.
type CapacityError struct {
	Needed, Limit, Used, Pending int64
	Disk                         bool     // the disk has no room, rather than the limit
	Kept                         []string // the versions that stay and who keeps them, in words
	ForLRU                       bool     // it has retention lru itself, so nothing is evicted for it
}

// maxKept is how many kept versions an error names.
const maxKept = 5

func (e *CapacityError) Error() string {
	var b strings.Builder
	remedy := "raise the limit"
	if e.Disk {
		remedy = "choose another folder"
		fmt.Fprintf(&b, "the model takes %s, and the disk has %s free, of which %s are promised to other fetches", bytesText(e.Needed), bytesText(e.Limit), bytesText(e.Pending))
	} else {
		fmt.Fprintf(&b, "the model takes %s, but of the limit of %s, %s are in use and %s are promised to other fetches", bytesText(e.Needed), bytesText(e.Limit), bytesText(e.Used), bytesText(e.Pending))
	}
	if len(e.Kept) > 0 {
		fmt.Fprintf(&b, "; these models stay: %s", strings.Join(e.Kept[:min(maxKept, len(e.Kept))], "; "))
	}
	if more := len(e.Kept) - maxKept; more > 0 {
		fmt.Fprintf(&b, "; and %d more", more)
	}
	if e.ForLRU {
		b.WriteString("; no model is evicted for one with retention lru")
	}
	fmt.Fprintf(&b, "; remove models, or %s", remedy)
	return b.String()
}
