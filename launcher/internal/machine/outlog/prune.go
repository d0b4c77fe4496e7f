package outlog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

// pruneGrace is how long after its last write a file is exempt from the limits of age and
// size, so that a log can be read after its instance is gone.
const pruneGrace = time.Minute

type logFile struct {
	name    string
	id      string
	n       int
	size    int64 // what the log has, without what was dropped from its beginning
	changed time.Time
}

// Prune removes the logs that are older than MaxAge, also if the clock was set. Then it removes the oldest ones until
// at most MaxFiles are left and all together hold at most MaxTotalBytes. Logs that inUse
// names count towards both limits and are never removed. If the logs that are left hold
// too much, the longest ones lose their beginnings. inUse may be nil; Prune calls it
// after it has listed the files, so that no listed file in use is missed. Prune logs the names
// of the logs that it removed. If it cannot remove a file, it continues with the others. It
// logs once what keeps it from following the clock, which is no error.
func (s *Store) Prune(inUse func() map[string]bool) error {
	s.pruning.Lock()
	defer s.pruning.Unlock()
	files, err := s.list()
	if err != nil {
		return err
	}
	var used map[string]bool
	if inUse != nil {
		used = inUse()
	}
	slices.SortFunc(files, func(a, b logFile) int { return cmp.Or(a.changed.Compare(b.changed), cmp.Compare(a.n, b.n)) })
	now := s.opts.Now()
	s.logClock(s.followClock(files, now))
	var errs []error
	var total int64
	for _, f := range files {
		total += f.size
	}
	var removed []string
	var gone, left []logFile
	kept := map[string]int{} // by id, the highest number
	for _, f := range files {
		age := now.Sub(f.changed)
		tooOld := s.opts.MaxAge > 0 && age > s.opts.MaxAge
		tooMuch := s.opts.MaxTotalBytes > 0 && total > s.opts.MaxTotalBytes
		tooMany := s.opts.MaxFiles > 0 && len(files)-len(gone) > s.opts.MaxFiles
		if used[f.name] || !tooMany && (age < pruneGrace || !tooOld && !tooMuch) {
			kept[f.id] = max(kept[f.id], f.n)
			left = append(left, f)
			continue
		}
		if err := os.Remove(s.path(f.name)); err != nil {
			kept[f.id] = max(kept[f.id], f.n)
			errs = append(errs, fmt.Errorf("cannot remove an old log: %w", err))
			continue
		}
		total -= f.size
		gone = append(gone, f)
		removed = append(removed, f.name)
		delete(s.said, f.name)
	}
	s.forget(gone, kept)
	if len(removed) > 0 {
		s.opts.Logger.Info("removed old logs", "logs", removed)
	}
	if s.opts.MaxTotalBytes > 0 && total > s.opts.MaxTotalBytes {
		errs = append(errs, s.shorten(left))
	}
	return errors.Join(errs...)
}

func (s *Store) list() ([]logFile, error) {
	entries, err := os.ReadDir(s.opts.Dir)
	if errors.Is(err, fs.ErrNotExist) { // see create
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the log folder: %w", err)
	}
	var files []logFile
	for _, entry := range entries {
		id, n, ok := ParseName(entry.Name())
		if !ok || !entry.Type().IsRegular() {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the log folder: %w", err)
		}
		files = append(files, logFile{name: entry.Name(), id: id, n: n, size: s.held(entry.Name(), info), changed: info.ModTime()})
	}
	return files, nil
}

// held is how many bytes a log has. The number of its blocks does not tell whether it has
// lost its beginning: a filesystem may have given it blocks beyond its end (XFS does).
func (s *Store) held(name string, info fs.FileInfo) int64 {
	f, err := s.open(name)
	if err != nil {
		return info.Size() // it is removed meanwhile, or no regular file
	}
	defer func() { _ = f.Close() }()
	begin, size, err := s.extent(f)
	if err != nil {
		return info.Size()
	}
	return size - begin
}

// forget takes removed logs out of the index, which keeps for each id the highest
// number that is left, and drops ids of which no log is left.
func (s *Store) forget(gone []logFile, kept map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files -= len(gone)
	for _, f := range gone {
		if s.last[f.id] != f.n {
			continue // there is a newer one
		}
		if kept[f.id] == 0 {
			delete(s.last, f.id)
		} else {
			s.last[f.id] = kept[f.id]
		}
	}
}
