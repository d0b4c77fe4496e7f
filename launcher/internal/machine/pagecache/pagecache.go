// Package pagecache tells how much of some files main memory holds, and reads files
// ahead of the engine that will load them, so that the engine reads no disk.
package pagecache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// UntoldError is why nobody can tell what main memory holds of a file: since Linux 5.2
// the kernel calls every page resident to a process that neither owns the file nor may
// write to it (can_do_mincore in mm/mincore.c).
type UntoldError struct{ Path string }

func (e *UntoldError) Error() string {
	return fmt.Sprintf("the kernel tells only the owner of %s, and who may write to it, how much of it main memory holds", e.Path)
}

// Resident is how many bytes of the files main memory holds.
func Resident(paths []string) (int64, error) {
	var all int64
	for _, path := range paths {
		n, err := residentOf(path)
		if err != nil {
			return 0, err
		}
		all += n
	}
	return all, nil
}

func residentOf(path string) (int64, error) {
	f, size, err := open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if !told(f) {
		return 0, &UntoldError{Path: path}
	}
	if n, known := cachestat(f, size); known {
		return n, nil
	}
	return residentByPage(f, size)
}

func residentByPage(f *os.File, size int64) (int64, error) {
	var all int64
	for offset := int64(0); offset < size; offset += window {
		n, err := resident(f, offset, min(window, size-offset))
		if err != nil {
			return 0, err
		}
		all += n
	}
	return all, nil
}

func open(path string) (f *os.File, size int64, err error) {
	if f, err = os.Open(path); err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", path)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// told says whether the kernel tells this process what main memory holds of a file.
func told(f *os.File) bool {
	var info unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &info); err != nil {
		return false
	}
	return int(info.Uid) == os.Geteuid() || unix.Faccessat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.W_OK, unix.AT_EACCESS) == nil
}

// window is how much of a file is looked at, or read by one reader, at a time; a
// multiple of the size of a page.
const window = 16 << 20

// resident is how many of length bytes from offset, a multiple of a page, main memory
// holds; see mincore(2).
func resident(f *os.File, offset, length int64) (int64, error) {
	data, err := unix.Mmap(int(f.Fd()), offset, int(length), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, fmt.Errorf("cannot map %s: %w", f.Name(), err)
	}
	defer func() { _ = unix.Munmap(data) }() // fails for what is no mapping
	page := int64(os.Getpagesize())
	pages := make([]byte, (length+page-1)/page)
	if err := mincore(data, pages); err != nil {
		return 0, fmt.Errorf("cannot ask what main memory holds of %s: %w", f.Name(), err)
	}
	var n int64
	for i, p := range pages {
		if p&1 != 0 {
			n += min(page, length-int64(i)*page)
		}
	}
	return n, nil
}

// Options of Warm. Everything is required.
type Options struct {
	Paths []string
	// Room is how many bytes may come into main memory without what runs losing any of
	// its own, nor these files what main memory holds of them.
	Room func(held int64) (int64, error)
}

// FullError is why Warm left files where they are.
type FullError struct{ Read, Left int64 }

func (e *FullError) Error() string {
	return fmt.Sprintf("no main memory is free for more: %d bytes were read, at most %d more were to be", e.Read, e.Left)
}

// readers is how many windows are read at a time: one reader alone leaves a fast disk
// idle while it copies.
const readers = 4

// Warm reads the files from the first to the last into main memory, as far as there is
// room: what it holds already is not read again. It gives how many bytes it has brought
// there. A FullError tells of files that had no room; when ctx ends, so does the reading.
func Warm(ctx context.Context, o Options) (fresh int64, err error) {
	held, err := Resident(o.Paths)
	if _, untold := errors.AsType[*UntoldError](err); err != nil && !untold {
		return 0, err
	}
	w := &warming{Options: o, held: held}
	group, ctx := errgroup.WithContext(ctx)
	parts := make(chan part)
	group.Go(func() error {
		defer close(parts)
		return w.deal(ctx, parts)
	})
	for range readers {
		group.Go(func() error {
			buffer := make([]byte, 256<<10)
			for p := range parts {
				if err := w.read(ctx, p, buffer); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = group.Wait()
	return w.fresh, err
}

// part is a window of a file that is to be read; done is called when nobody reads it
// any more.
type part struct {
	file    *os.File
	offset  int64
	length  int64
	missing int64 // as far as can be told
	done    func()
}

// warming is one call of Warm.
type warming struct {
	Options

	held  int64 // bytes that main memory held at the beginning, as far as can be told
	dealt int64 // bytes of the parts that were dealt out

	mu    sync.Mutex
	fresh int64 // of these, what has been read
}

// deal gives the parts of the files that main memory lacks to the readers.
func (w *warming) deal(ctx context.Context, parts chan<- part) error {
	for i, path := range w.Paths {
		if err := w.dealFile(ctx, path, w.Paths[i+1:], parts); err != nil {
			return err
		}
	}
	return nil
}

func (w *warming) dealFile(ctx context.Context, path string, after []string, parts chan<- part) error {
	f, size, err := open(path)
	if err != nil {
		return err
	}
	var reading sync.WaitGroup // the file is closed when its last reader is done
	defer func() { reading.Wait(); f.Close() }()
	tells := told(f)
	for offset := int64(0); offset < size; offset += window {
		p := part{file: f, offset: offset, length: min(window, size-offset), done: reading.Done}
		p.missing = p.length
		if tells {
			n, err := resident(f, offset, p.length)
			if err != nil {
				return err
			}
			p.missing -= n
		}
		if p.missing == 0 {
			continue
		}
		if err := w.admit(p, size, after); err != nil {
			return err
		}
		reading.Add(1)
		select {
		case parts <- p:
		case <-ctx.Done():
			reading.Done()
			return context.Cause(ctx)
		}
	}
	return nil
}

// admit sees that there is room for a part.
func (w *warming) admit(p part, size int64, after []string) error {
	w.mu.Lock()
	fresh := w.fresh
	w.mu.Unlock()
	room, err := w.Room(w.held + fresh)
	if err != nil {
		return err
	}
	if w.dealt-fresh+p.missing > room {
		left := size - p.offset
		for _, path := range after {
			if info, err := os.Stat(path); err == nil {
				left += info.Size()
			}
		}
		return &FullError{Read: w.dealt, Left: left}
	}
	w.dealt += p.missing
	return nil
}

func (w *warming) read(ctx context.Context, p part, buffer []byte) error {
	defer p.done()
	for at := int64(0); at < p.length; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := p.file.ReadAt(buffer[:min(int64(len(buffer)), p.length-at)], p.offset+at)
		if at += int64(n); errors.Is(err, io.EOF) {
			return fmt.Errorf("%s has become shorter while it was read", p.file.Name())
		}
		if err != nil {
			return err
		}
	}
	w.mu.Lock()
	w.fresh += p.missing
	w.mu.Unlock()
	return nil
}
