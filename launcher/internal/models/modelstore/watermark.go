package modelstore

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// Why a version was evicted.
const (
	ForRoom      = "room"      // another version needed its room
	AboveTheMark = "watermark" // the store or its disk was above the high watermark
)

// Eviction is a version that was evicted.
type Eviction struct {
	Version
	Why   string
	Bytes int64 // how many bytes became free
}

// Watermarks say how full the store may be, in percent of its limit and of its disk.
//
// When a publication brings the store or its disk above High, the store evicts versions
// that nobody keeps, until it is down to Low. A version that is only kept while there is
// room is not fetched beyond Low: otherwise it would be fetched and evicted again and
// again.
type Watermarks struct {
	High int // 0 or 100: the store evicts nothing
	Low  int // below High
}

func (w Watermarks) isSet() bool { return w.High > 0 && w.High < 100 }

// disk returns the size of a folder's disk, and how many bytes may still be written.
func disk(dir string) (size, free int64, err error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, 0, fmt.Errorf("cannot find out how much room the disk of %s has: %w", dir, err)
	}
	return int64(stat.Blocks) * stat.Bsize, int64(stat.Bavail) * stat.Bsize, nil
}

// NoRoom gives an error of a full disk a reason. A disk may be full of files, with room for
// bytes: then it has no inodes left.
func NoRoom(dir string, err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	what := "is full"
	var stat unix.Statfs_t
	if unix.Statfs(dir, &stat) == nil && stat.Files > 0 && stat.Ffree == 0 {
		what = "has no inodes left, so it takes no more files"
	}
	return &fetchapi.Error{Reason: fetchapi.ReasonCapacityExceeded, Detail: fmt.Sprintf("the disk of the model store %s: %v; free some room, and pull again", what, err)}
}

func percentOf(percent int, of int64) int64 { return int64(float64(of) * float64(percent) / 100) }

// excess returns how many of the used bytes must be freed. of is the limit or the size
// of the disk.
func (w Watermarks) excess(used, of int64) int64 {
	if of <= 0 || used <= percentOf(w.High, of) {
		return 0
	}
	return used - percentOf(w.Low, of)
}

// excess returns how many bytes must be freed because of the limit and the disk.
func (s *Store) excess() (int64, error) {
	size, free, err := s.disk(s.dir)
	if err != nil {
		return 0, err
	}
	used, err := s.Used()
	return max(s.watermarks.excess(used, s.limit), s.watermarks.excess(size-free, size)), err
}

// evictToLowWatermark evicts versions that nobody keeps, if the publication of f has
// brought the store above its high watermark. It evicts the least recently used first,
// until the store is down to the low watermark or no more may be evicted. The published
// version stays. No lease can be taken meanwhile.
func (s *Store) evictToLowWatermark(f *Fetch, published string) error {
	if !s.watermarks.isSet() {
		return nil
	}
	needed, err := s.excess()
	if err != nil || needed == 0 {
		return err
	}
	unlock, err := s.lockLeases()
	if err != nil {
		return err
	}
	defer unlock()
	candidates, err := s.findEvictable()
	if err != nil {
		return err
	}
	candidates.idle = slices.DeleteFunc(candidates.idle, func(v Version) bool { return v.Key == published })
	gone := fewestEnough(candidates.idle, func(gone []Version) bool { return candidates.bytesFreedBy(gone) >= needed })
	if err := s.evictVersions(f, candidates, gone, AboveTheMark); err != nil {
		return err
	}
	unlock()
	s.emptyTrash()
	return errors.Join(s.rebuildHub(), s.removeUnusedBlobs())
}

// evictVersions evicts versions, and records them in f.Evicted.
func (s *Store) evictVersions(f *Fetch, candidates *evictable, gone []Version, why string) error {
	var freed int64
	for n, v := range gone {
		if err := s.discard(v.Key); err != nil {
			return fmt.Errorf("cannot remove %s to make room: %w", v.Manifest.URI, err)
		}
		before := freed
		freed = candidates.bytesFreedBy(gone[:n+1])
		f.Evicted = append(f.Evicted, Eviction{Version: v, Why: why, Bytes: freed - before})
		if err := s.removeWants(v.Wants); err != nil {
			return err
		}
	}
	return nil
}
