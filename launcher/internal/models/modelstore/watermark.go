package modelstore

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Why a version was evicted.
const (
	ForRoom      = "room"      // another needed its room
	AboveTheMark = "watermark" // the store, or its disk, was fuller than the high watermark
)

// Eviction is a version that had to go.
type Eviction struct {
	Version
	Why   string
	Bytes int64 // that became free
}

// Watermarks say how full the store may be, in percent of its limit and of its disk.
// When one of them is fuller than High once a model was published, models go that nobody
// keeps, until it is as full as Low. What is only kept while there is room is not fetched
// beyond Low: so it is not fetched again and again to be evicted again and again.
type Watermarks struct {
	High int // 0 or 100: nothing goes
	Low  int // below High
}

func (w Watermarks) set() bool { return w.High > 0 && w.High < 100 }

// disk tells how large the disk of a folder is, and how much may still be written to it.
func disk(dir string) (size, free int64, err error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, 0, fmt.Errorf("cannot tell how much room the disk of %s has: %w", dir, err)
	}
	return int64(stat.Blocks) * stat.Bsize, int64(stat.Bavail) * stat.Bsize, nil
}

func part(percent int, of int64) int64 { return int64(float64(of) * float64(percent) / 100) }

// excess is how many of so many bytes have to go.
func (w Watermarks) excess(used, of int64) int64 {
	if of <= 0 || used <= part(w.High, of) {
		return 0
	}
	return used - part(w.Low, of)
}

// excess is how many bytes have to go for the sake of the limit and of the disk.
func (s *Store) excess() (int64, error) {
	size, free, err := s.disk(s.dir)
	if err != nil {
		return 0, err
	}
	used, err := s.Used()
	return max(s.marks.excess(used, s.limit), s.marks.excess(size-free, size)), err
}

// giveWay removes versions that nobody keeps, where the store is above its high
// watermark now that f is published: the one that was used longest ago first, down to
// the low one or as far as it goes. What was published stays. Nobody takes a lease
// meanwhile.
func (s *Store) giveWay(f *Fetch, published string) error {
	if !s.marks.set() {
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
	who, err := s.whoMayGo()
	if err != nil {
		return err
	}
	who.idle = slices.DeleteFunc(who.idle, func(v Version) bool { return v.Key == published })
	gone := fewest(who.idle, func(gone []Version) bool { return who.frees(gone) >= needed })
	if err := s.throwOut(f, who, gone, AboveTheMark); err != nil {
		return err
	}
	unlock()
	return errors.Join(s.mendHub(), s.emptyTrash(), s.dropUnused())
}

// throwOut removes versions, and notes that for whom it was.
func (s *Store) throwOut(f *Fetch, who *mayGo, gone []Version, why string) error {
	var freed int64
	for n, v := range gone {
		if err := s.throwAway(s.version(v.Key)); err != nil {
			return fmt.Errorf("cannot remove %s to make room: %w", v.Manifest.URI, err)
		}
		before := freed
		freed = who.frees(gone[:n+1])
		f.Evicted = append(f.Evicted, Eviction{Version: v, Why: why, Bytes: freed - before})
		if err := s.dropWants(v.Wants); err != nil {
			return err
		}
	}
	return nil
}
