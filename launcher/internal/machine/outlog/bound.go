package outlog

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"
)

// Bound looks at the logs when somebody has written to one, and not before they could be
// over the limit at fastestWriter. Engines that write 100 MB/s exceed the limit by what they
// write within shortestPause and the cut: some 20 MB.
const (
	fastestWriter = 256 << 20 // bytes per second
	shortestPause = 100 * time.Millisecond
	longestPause  = 30 * time.Second
)

// Bound keeps the logs within MaxTotalBytes while engines write to them, by Prune. It
// returns when ctx ends or the Store is closed. It does nothing while nobody writes.
func (s *Store) Bound(ctx context.Context, inUse func() map[string]bool) {
	if s.opts.MaxTotalBytes == 0 {
		return
	}
	for {
		sub, err := s.changes.subscribe(anyLog)
		if errors.Is(err, ErrClosed) {
			return
		}
		pause := s.look(inUse)
		if err == nil { // without a watch, the pause alone decides
			select {
			case <-sub.wake:
			case <-s.changes.ended:
			case <-ctx.Done():
			}
			s.changes.unsubscribe(sub)
		}
		select {
		case <-time.After(pause):
		case <-s.changes.ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

// look prunes the logs if they hold too much. It returns when to look again.
func (s *Store) look(inUse func() map[string]bool) time.Duration {
	total, err := s.total()
	if err == nil && total > s.opts.MaxTotalBytes {
		err = s.Prune(inUse)
		if err == nil {
			total, err = s.total()
		}
	}
	if err != nil {
		s.opts.Logger.Warn("cannot keep the logs within log_max_bytes", "error", err)
		return longestPause
	}
	room := float64(max(0, s.opts.MaxTotalBytes-total))
	return max(shortestPause, min(longestPause, time.Duration(room/fastestWriter*float64(time.Second))))
}

// total is how many bytes all logs hold.
func (s *Store) total() (total int64, err error) {
	files, err := s.list()
	for _, f := range files {
		total += f.size
	}
	return total, err
}

// saidEvery is how often the launcher's log says that a log was shortened.
const saidEvery = time.Hour

// shorten drops the beginnings of the longest logs, until all together hold three quarters
// of MaxTotalBytes. The quarter keeps the next cut away.
func (s *Store) shorten(files []logFile) error {
	sizes := make([]int64, len(files))
	for n, f := range files {
		sizes[n] = f.size
	}
	keep := share(sizes, s.opts.MaxTotalBytes-s.opts.MaxTotalBytes/4)
	var errs []error
	for _, f := range files {
		if f.size <= keep {
			continue
		}
		dropped, err := s.cut(f.name, keep)
		errs = append(errs, err)
		if now := s.opts.Now(); dropped > 0 && now.Sub(s.said[f.name]) >= saidEvery {
			s.said[f.name] = now
			s.opts.Logger.Info("dropped the beginning of a log: the logs together exceeded log_max_bytes; the launcher goes on so, and says it once an hour", "log", f.name, "dropped_bytes", dropped, "log_max_bytes", s.opts.MaxTotalBytes)
		}
	}
	return errors.Join(errs...)
}

// share returns how much a log may hold, so that all together hold at most total. Logs that
// hold less keep what they have.
func share(sizes []int64, total int64) int64 {
	slices.Sort(sizes)
	for n, size := range sizes {
		equal := total / int64(len(sizes)-n)
		if size > equal {
			return equal
		}
		total -= size
	}
	return math.MaxInt64
}
