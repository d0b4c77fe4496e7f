package outlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher"
)

// A log that is too long loses its beginning, while the engine writes on. The file gets a
// hole there: its blocks are free, and all offsets stay as they are. The file itself says
// where the log begins, to this launcher and to later ones: at the first byte that is not
// NUL.

const (
	scanned = 64 << 10 // bytes that are searched for the log's first byte at once
	// longestLine is how far cut looks for the end of a line.
	longestLine = 1 << 20
	// rewritten is how much of a log stays where the filesystem has no holes.
	rewritten = 4 << 20
)

// beginning returns the offset of the first byte that a log still has. It is the size if
// the log has none.
func beginning(f *os.File, size int64) (int64, error) {
	var first [1]byte
	if _, err := f.ReadAt(first[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if size == 0 || first[0] != 0 {
		return 0, nil
	}
	at, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size, nil // there is nothing but the hole
	}
	if err != nil {
		at = 0 // the filesystem cannot tell where its holes are
	}
	return firstText(f, at, size)
}

// firstText returns the offset of the first byte that is not NUL. It is mostly near: a
// filesystem frees whole blocks, and fills the rest with NULs. A filesystem that does not
// tell where its holes are gets a binary search, since a log has one hole at its beginning.
func firstText(f *os.File, from, size int64) (int64, error) {
	buf := make([]byte, scanned)
	var failed error
	find := func(block int) (at int64, ok bool) {
		start := from + int64(block)*scanned
		n, err := f.ReadAt(buf, start)
		if err != nil && !errors.Is(err, io.EOF) {
			failed = err
		}
		nuls := n - len(bytes.TrimLeft(buf[:n], "\x00"))
		return start + int64(nuls), nuls < n
	}
	at, ok := find(0)
	if !ok {
		blocks := int((size - from + scanned - 1) / scanned)
		at, _ = find(sort.Search(blocks, func(block int) bool { _, ok := find(block); return ok }))
	}
	return min(at, size), failed
}

// readKept reads as [io.ReaderAt] does. The error is a *[launcher.LogRangeError] if the log
// does not have the byte at the offset any more.
func (s *Store) readKept(f *os.File, p []byte, at int64) (int, error) {
	s.cuts.RLock()
	defer s.cuts.RUnlock()
	begin, size, err := extentOf(f)
	if err != nil {
		return 0, err
	}
	if at < begin {
		return 0, &launcher.LogRangeError{First: at, Begin: begin, Total: size}
	}
	return f.ReadAt(p, at)
}

// extent returns where a log begins and ends.
func (s *Store) extent(f *os.File) (begin, size int64, err error) {
	s.cuts.RLock()
	defer s.cuts.RUnlock()
	return extentOf(f)
}

// extentOf is extent for a caller that holds the lock.
func extentOf(f *os.File) (begin, size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	begin, err = beginning(f, info.Size())
	return begin, info.Size(), err
}

// cut drops the beginning of a log, so that at most keep bytes are left. It cuts where a
// line begins, unless the line is longer than longestLine or half of what is to be kept.
func (s *Store) cut(name string, keep int64) (dropped int64, err error) {
	f, err := os.OpenFile(s.path(name), os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, fmt.Errorf("cannot shorten a log: %w", err)
	}
	defer func() { _ = f.Close() }()
	s.cuts.Lock()
	defer s.cuts.Unlock()
	begin, size, err := extentOf(f)
	if err != nil {
		return 0, fmt.Errorf("cannot shorten the log %q: %w", name, err)
	}
	at := size - keep
	if at <= begin {
		return 0, nil
	}
	at = lineAfter(f, at, size, min(keep/2, longestLine))
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, at)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		s.sayRewritten()
		if size-at > rewritten {
			at = lineAfter(f, size-rewritten, size, rewritten/2)
		}
		err = s.rewrite(f, at, size)
	}
	if err != nil {
		return 0, fmt.Errorf("cannot shorten the log %q: %w", name, err)
	}
	return at - begin, nil
}

// lineAfter returns where the next line begins, at the offset or after it. If none begins
// within the window, it returns the offset.
func lineAfter(f *os.File, at, size, window int64) int64 {
	buf := make([]byte, window+1)
	n, _ := f.ReadAt(buf, at-1) // what cannot be read has no line
	line := at + int64(bytes.IndexByte(buf[:n], '\n'))
	if line < at || line >= size {
		return at
	}
	return line
}

// rewrite does what a hole does, where the filesystem can make none: it frees the whole
// file, and writes its last part again at the old offset. The engine may write
// between the two calls of Truncate, at the start of the file. That is moved to the end. Lines
// that the engine writes between the read and the first Truncate are lost.
func (s *Store) rewrite(f *os.File, at, size int64) error {
	last := make([]byte, size-at)
	if _, err := f.ReadAt(last, at); err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(0), f.Truncate(size)); err != nil {
		return err
	}
	strayed := make([]byte, min(scanned, at))
	n, err := f.ReadAt(strayed, 0)
	strayed = bytes.TrimRight(strayed[:n], "\x00")
	if err != nil || len(strayed) == 0 {
		_, writeErr := f.WriteAt(last, at)
		return errors.Join(err, writeErr)
	}
	_, blankErr := f.WriteAt(make([]byte, len(strayed)), 0)
	_, lastErr := f.WriteAt(last, at)
	end, err := os.OpenFile(f.Name(), os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0)
	if err != nil {
		return errors.Join(blankErr, lastErr, err)
	}
	_, err = end.Write(strayed)
	return errors.Join(blankErr, lastErr, err, end.Close())
}

func (s *Store) sayRewritten() {
	s.onRewrite.Do(func() {
		s.opts.Logger.Warn("the filesystem of the logs cannot free the beginning of a file; a log that is too long is rewritten, and a line that its engine writes at that moment may be lost", "folder", s.opts.Dir)
	})
}
