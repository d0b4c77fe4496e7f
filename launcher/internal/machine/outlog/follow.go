package outlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

const followChunk = 32 << 10

// Follow hands the bytes of a log to write, in order, beginning at the offset from,
// and goes on as the log grows. Follow ends
//
//   - with nil when over is closed and the whole log was handed on;
//   - with the error of ctx when ctx ends, at once;
//   - with the error of write when there is one;
//   - with a *[launcher.LogRangeError] when the log loses bytes that were not handed on;
//   - with ErrClosed when the Store is closed.
//
// The caller closes over when no process writes to the log any more; nil: never. write
// must not keep the slice.
func (s *Store) Follow(ctx context.Context, name string, from int64, over <-chan struct{}, write func([]byte) error) (err error) {
	log := &followed{store: s, at: from}
	if log.file, err = s.open(name); err != nil {
		return err
	}
	defer func() { _ = log.file.Close() }()
	sub, err := s.changes.subscribe(name)
	if err != nil {
		return err
	}
	defer func() { s.changes.unsubscribe(sub) }()

	for last := false; ; {
		if err := log.deliver(ctx, write); err != nil {
			return err
		}
		if next := s.successor(log.file, name); next != nil {
			_ = log.file.Close()
			s.changes.unsubscribe(sub)
			log = &followed{store: s, file: next}
			if sub, err = s.changes.subscribe(name); err != nil {
				return err
			}
			continue
		}
		if last {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.changes.ended:
			return ErrClosed
		case <-sub.wake:
		case <-over:
			last = true
		}
	}
}

// successor opens the file that has the name now. It returns nil if that is still the file
// of, or if no file has the name.
func (s *Store) successor(of *os.File, name string) *os.File {
	before, err := of.Stat()
	if err != nil {
		return nil
	}
	if now, err := os.Stat(s.path(name)); err != nil || os.SameFile(before, now) {
		return nil
	}
	next, err := s.open(name)
	if err != nil {
		return nil
	}
	return next
}

// followed is a log that is followed.
type followed struct {
	store *Store
	file  *os.File
	at    int64 // offset of the next byte
	seen  int64 // length of the file when it was last looked at
}

// deliver writes up to the present end of the file: from the start when the file
// has become shorter since the last look.
func (l *followed) deliver(ctx context.Context, write func([]byte) error) error {
	_, size, err := l.store.extent(l.file)
	if err != nil {
		return fmt.Errorf("cannot follow the log: %w", err)
	}
	if size < l.seen {
		l.at = 0
	}
	began := l.at
	l.at, err = deliver(ctx, kept{l.store, l.file}, l.at, write)
	l.seen = size
	if l.at > began {
		l.seen = max(l.seen, l.at)
	}
	return err
}

// deliver writes from the offset to the present end of the file, and returns the
// offset of that end.
func deliver(ctx context.Context, f io.ReaderAt, from int64, write func([]byte) error) (int64, error) {
	buf := make([]byte, followChunk)
	for {
		n, err := f.ReadAt(buf, from)
		if err != nil && !errors.Is(err, io.EOF) {
			return from, fmt.Errorf("cannot follow the log: %w", err)
		}
		if ctx.Err() != nil {
			return from, ctx.Err()
		}
		if n > 0 {
			if err := write(buf[:n]); err != nil {
				return from, err
			}
			from += int64(n)
		}
		if n < len(buf) { // the end of the file
			return from, nil
		}
	}
}

// Watch returns a channel that receives a value when the log has grown. Several wake-ups
// that are not received yet become one. The channel is never closed. The second result
// ends the watch; it may be called more than once.
func (s *Store) Watch(name string) (<-chan struct{}, func(), error) {
	f, err := s.open(name)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	sub, err := s.changes.subscribe(name)
	if err != nil {
		return nil, nil, err
	}
	return sub.wake, sync.OnceFunc(func() { s.changes.unsubscribe(sub) }), nil
}
