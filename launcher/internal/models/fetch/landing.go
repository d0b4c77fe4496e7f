package fetch

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// short is below which size a file is brought to the disk together with others, once
// it has come: while it comes, nothing of it is noted.
const short = Chunk / 2

// Of short files so many are brought to the disk one by one, which waits for nothing
// of others; and so many are together at most, whatever their size.
const (
	fewFiles  = 16
	manyFiles = 1024
)

// landing are the short files that have come whole and have not got their names yet,
// since they are not surely on the disk. At most half a chunk of them gathers while
// another half is brought there.
type landing struct {
	folder   *os.File // of which is told what the disk could not take since it was opened
	together bool     // one call brings all of its file system to the disk

	mu    sync.Mutex
	parts []*part
	bytes int64
	disk  sync.Mutex // held while files are brought to the disk
}

func land(staging *os.Root) (*landing, error) {
	folder, err := staging.Open(".")
	if err != nil {
		return nil, err
	}
	var on unix.Statfs_t
	if err := unix.Fstatfs(int(folder.Fd()), &on); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot find out the file system of %s: %w", staging.Name(), err), folder.Close())
	}
	return &landing{folder: folder, together: on.Type != unix.FUSE_SUPER_MAGIC}, nil // whose servers are not asked to sync by syncfs
}

// take takes a file that has come whole. Once there are half a chunk, who brought the
// last brings them to the disk; meanwhile others gather, and then wait.
func (l *landing) take(p *part) error {
	l.mu.Lock()
	l.parts, l.bytes = append(l.parts, p), l.bytes+p.file.Size
	if l.bytes < short && len(l.parts) < manyFiles {
		l.mu.Unlock()
		return nil
	}
	return l.settle()
}

// rest brings what has gathered to the disk.
func (l *landing) rest() error {
	l.mu.Lock()
	return l.settle()
}

// settle brings what has gathered to the disk. It is called with the lock, and gives it
// back when what was gathered before is there.
func (l *landing) settle() error {
	l.disk.Lock()
	defer l.disk.Unlock()
	parts := l.parts
	l.parts, l.bytes = nil, 0
	l.mu.Unlock()
	if err := l.sync(parts); err != nil {
		return err
	}
	for _, p := range parts {
		if err := p.rename(); err != nil {
			return err
		}
	}
	return nil
}

func (l *landing) sync(parts []*part) error {
	if l.together && len(parts) > fewFiles {
		return os.NewSyscallError("syncfs", unix.Syncfs(int(l.folder.Fd())))
	}
	var group errgroup.Group
	group.SetLimit(finishing)
	for _, p := range parts {
		group.Go(func() error { return syncFile(p) })
	}
	return group.Wait()
}

func syncFile(p *part) error {
	f, err := p.f.in.Open(p.name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (l *landing) close() error { return l.folder.Close() }
