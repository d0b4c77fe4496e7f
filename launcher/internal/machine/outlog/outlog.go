// Package outlog keeps the engines' log files. An engine writes straight to
// its file, through a descriptor given to it at its start, so that nothing is
// lost and nothing blocks while the launcher is away. This package makes the
// files, reads them in ranges, follows them as they grow, drops old ones and keeps
// those in use from growing without end.
package outlog

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"hotseat.dev/hotseat/launcher/internal/machine/regular"
)

// ErrClosed is what a follower or a watch gets when the Store is closed.
var ErrClosed = errors.New("the log store is closed")

// Options of a Store.
type Options struct {
	// Dir is the folder of the log files; it is made when it is missing.
	Dir string
	// MaxTotalBytes is how much all log files together may hold before Prune drops the
	// oldest ones that are not in use, and then the beginnings of the longest ones. 0 is
	// no limit.
	MaxTotalBytes int64
	// MaxFiles is how many log files there may be before Prune drops the oldest
	// ones that are not in use. 0 is no limit.
	MaxFiles int
	// MaxAge is how long a file is kept after its last write. 0 is no limit.
	MaxAge time.Duration
	// ClockFile keeps how far the wall clock is ahead of the clock of the boot. Empty: it
	// is not noticed that the clock was set while no Store was open.
	ClockFile string
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// SinceBoot is the clock of the boot, with the boot's id; the kernel's when nil.
	SinceBoot func() (boot string, since time.Duration, err error)
	// Logger logs what is removed and shortened, and errors in the background; nil: nothing
	// is logged.
	Logger *slog.Logger
}

// Store is a folder of log files. Its methods may be called from several
// goroutines at once.
type Store struct {
	opts    Options
	changes *notifier
	tooMany chan struct{} // capacity 1

	cuts      sync.RWMutex // a log is shortened, or a part of it is read
	onRewrite sync.Once

	pruning sync.Mutex
	said    map[string]time.Time // when the log last said that this log was shortened
	clock   clockSetting         // zero: it is not known
	// clockKept is false if the setting of the clock could not be written.
	clockKept   bool
	clockFailed bool // the log says so

	mu    sync.Mutex
	last  map[string]int // the highest number in use of each id
	files int            // how many files there are
}

// Open opens the folder, making it when it is missing, and finds the files that an
// earlier process left there. Close ends the watch of the folder.
func Open(opts Options) (*Store, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.SinceBoot == nil {
		opts.SinceBoot = sinceBoot
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the log folder: %w", err)
	}
	entries, err := os.ReadDir(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the log folder: %w", err)
	}
	last, files := map[string]int{}, 0
	for _, entry := range entries {
		if id, n, ok := ParseName(entry.Name()); ok {
			last[id] = max(last[id], n)
			files++
		}
	}
	changes, err := newNotifier(opts.Dir, opts.Logger)
	if err != nil {
		return nil, fmt.Errorf("cannot watch the log folder %s: %w", opts.Dir, err)
	}
	s := &Store{opts: opts, changes: changes, tooMany: make(chan struct{}, 1), said: map[string]time.Time{}, last: last, files: files}
	s.logClock(s.openClock())
	return s, nil
}

// Close ends all followers and watches with ErrClosed and waits for the
// goroutine of the Store. The files stay.
func (s *Store) Close() error { return s.changes.close() }

// Create makes a new, empty log file for the instance id and returns it, open
// for appending, with its name. The file is for the engine: the caller hands
// it on and closes its own copy. An id that was used before gets a new file.
func (s *Store) Create(id string) (*os.File, string, error) {
	if id == "" {
		return nil, "", errors.New("cannot create a log: the instance id is empty")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := s.last[id] + 1; ; n++ {
		name := formatName(id, n)
		f, err := s.create(name)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, "", fmt.Errorf("cannot create the log of instance %q: %w", id, err)
		}
		s.last[id] = n
		s.changes.wake(name) // a folder that was made again is not watched
		if s.files++; s.opts.MaxFiles > 0 && s.files > s.opts.MaxFiles {
			select {
			case s.tooMany <- struct{}{}:
			default: // one is waiting to be received
			}
		}
		return f, name, nil
	}
}

// create makes a file, and first the folder where a cleaner of temporary files has removed
// it.
func (s *Store) create(name string) (f *os.File, err error) {
	const flags = os.O_WRONLY | os.O_APPEND | os.O_CREATE | os.O_EXCL
	if f, err = os.OpenFile(s.path(name), flags, 0o600); !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err = os.Mkdir(s.opts.Dir, 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(s.path(name), flags, 0o600)
}

// Reopen opens a log that is there for appending, for another process of its instance. The error
// is fs.ErrNotExist if there is none.
func (s *Store) Reopen(name string) (*os.File, error) {
	if _, _, ok := ParseName(name); !ok {
		return nil, fmt.Errorf("cannot open the log %q: %w", name, fs.ErrNotExist)
	}
	return os.OpenFile(s.path(name), os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

// Note appends a line of the launcher's own to a log that an engine may be writing to.
func (s *Store) Note(name, text string) error {
	f, err := s.Reopen(name)
	if err == nil {
		_, err = fmt.Fprintf(f, "hotseat: %s\n", text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("cannot write to the log %q: %w", name, err)
	}
	return nil
}

// TooMany returns a channel that receives a value when a new log exceeds MaxFiles. Prune is
// due then.
func (s *Store) TooMany() <-chan struct{} { return s.tooMany }

// Latest gives the name of the newest log of the instance id. It knows the
// files of earlier processes too.
func (s *Store) Latest(id string) (name string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.last[id]
	if !ok {
		return "", false
	}
	return formatName(id, n), true
}

// Size is the offset of a log's end; 0 where there is no log.
func (s *Store) Size(name string) int64 {
	if _, _, ok := ParseName(name); !ok {
		return 0
	}
	info, err := os.Lstat(s.path(name))
	if err != nil {
		return 0
	}
	return info.Size()
}

func (s *Store) path(name string) string { return filepath.Join(s.opts.Dir, name) }

// open opens a log for reading. The error for a name that no log can have, such as
// a path, is that for a file that does not exist.
func (s *Store) open(name string) (*os.File, error) {
	if _, _, ok := ParseName(name); !ok {
		return nil, fmt.Errorf("cannot open the log %q: %w", name, fs.ErrNotExist)
	}
	f, _, err := regular.Open(s.path(name))
	if err != nil {
		return nil, fmt.Errorf("cannot open the log %q: %w", name, err)
	}
	return f, nil
}
