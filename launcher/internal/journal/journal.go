// Package journal keeps what a program must know again after it died: an
// append-only file of records, replayed at the next start.
//
// A record is in the file (in the kernel's page cache, that is) when Append
// returns, so a killed program loses nothing. Flushing to the disk, which only
// matters when the whole machine goes down, is done behind the caller's back.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"
)

// ErrClosed is what the methods of a closed Journal return.
var ErrClosed = errors.New("the journal is closed")

const (
	defaultMaxBytes = 4 << 20
	// flushDelay is how long the background goroutine lets a burst of appends
	// gather before it flushes them together.
	flushDelay = 50 * time.Millisecond
)

// Options of a Journal.
type Options struct {
	// BootID tells one start of the machine from another; that of the running
	// kernel (/proc/sys/kernel/random/boot_id) when empty.
	BootID string
	// MaxBytes is the size from which on the file is compacted in the
	// background; 4 MiB when 0. What is live may be larger: then the file may
	// grow to twice of that.
	MaxBytes int64
	// Snapshot gives records that together say what all records so far say.
	// It is called on the Journal's own goroutine with no lock held, and may
	// take the lock under which the owner appends a record and applies it.
	// Records appended while it runs are kept behind the snapshot, although it
	// may hold their effect already: replaying a record twice must do no harm.
	// Without a Snapshot the file is never compacted.
	Snapshot func() ([]any, error)
	// Readable says what is wrong with a record that Open read; one that it
	// refuses counts as damaged. Every record is good when it is nil.
	Readable func(json.RawMessage) error
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// Logger gets what fails in the background; nothing is logged when nil.
	Logger *slog.Logger
}

// Found is what Open read.
type Found struct {
	// Records are the records in the order they were appended.
	Records []json.RawMessage
	// BootID is that of the machine's start under which the last of them were
	// written; empty when there was no journal. When it differs from the
	// present one, no process of then is alive.
	BootID string
	// New says that there was no journal, and that there is one now.
	New bool
	// Broken is nil unless the file was damaged. Then Records holds all but
	// what stood in the damaged lines, and the file was set aside.
	Broken *BrokenError
}

// BrokenError is damage in a journal where no crash of the writer can have
// left it.
type BrokenError struct {
	// SetAside is the path that the damaged file is kept as: its own, where
	// nothing could be written in its place. The next Open tries that again.
	SetAside string
	// Lines are how many were damaged, and Offset is that of the first of them,
	// in bytes from the start.
	Lines  int
	Offset int64
	Reason string // what is wrong with the first
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("the journal has damaged lines: %d, the first at byte %d: %s; the file is kept as %s", e.Lines, e.Offset, e.Reason, e.SetAside)
}

// VersionError is a journal that a newer program wrote. Nothing was touched.
type VersionError struct {
	Path         string
	Found, Known int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("cannot read the journal %s: its format has version %d, this program knows up to %d; start the newer program, or move the file away",
		e.Path, e.Found, e.Known)
}

// Journal is an open journal file. Its methods may be called from several
// goroutines at once.
type Journal struct {
	path string
	opts Options

	work chan struct{} // capacity 1: there is something to flush
	quit chan struct{}
	done chan struct{} // closed when the background goroutine is over

	// slow is held by whoever flushes or compacts, and is taken before mu.
	// Append needs only mu, so that it never waits for the disk.
	slow sync.Mutex

	mu        sync.Mutex
	closed    bool
	file      *os.File // changed only under slow and mu together
	size      int64    // of the whole lines in the file: where the next goes
	torn      bool     // something that is no whole line may stand behind size
	damaged   bool     // the file holds damaged lines: it is set aside when another takes its place
	pending   []byte   // a header that goes into the file before the next record
	compactAt int64    // the size from which on to compact
}

// Open opens the journal at path, making it when there is none, and reads it.
// What a crash left of a last record is cut off. A disk that is full is no
// error: then the first Append that has room begins the file. The error is a
// *VersionError for a file of a newer format. Close gives back what the Journal
// holds. The caller sees to it that nobody else has the file open (see Lock).
func Open(path string, opts Options) (*Journal, Found, error) {
	if err := opts.complete(); err != nil {
		return nil, Found{}, err
	}
	data, err := os.ReadFile(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return nil, Found{}, fmt.Errorf("cannot read the journal: %w", err)
	}
	j := &Journal{
		path: path, opts: opts, compactAt: opts.MaxBytes,
		work: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	c, err := parse(data, opts.Readable)
	if newer := (*VersionError)(nil); errors.As(err, &newer) {
		newer.Path = path
		return nil, Found{}, err
	}
	found := Found{Records: c.records, BootID: c.last.BootID, Broken: c.broken}
	switch {
	case c.broken != nil:
		err = j.replaceBroken(found, data)
	case c.good == 0:
		found.New, err = j.begin(missing)
	default:
		err = j.reopen(c, len(data))
	}
	if err != nil {
		return nil, Found{}, err
	}
	go j.run()
	return j, found, nil
}

func (o *Options) complete() error {
	if o.BootID == "" {
		id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return fmt.Errorf("cannot tell which start of the machine this is: %w", err)
		}
		o.BootID = string(bytes.TrimSpace(id))
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// reopen goes on with a file that was found good up to c.good of its size.
func (j *Journal) reopen(c contents, size int) error {
	f, err := os.OpenFile(j.path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("cannot open the journal: %w", err)
	}
	j.file, j.size, j.torn = f, int64(c.good), size > c.good
	if j.torn {
		err = j.repair()
	}
	if err == nil && c.last.BootID != j.opts.BootID {
		j.pending, err = encode(headerKey, j.header())
	}
	if err != nil {
		_ = f.Close()
		return fmt.Errorf("cannot open the journal: %w", err)
	}
	return nil
}

// begin makes the journal. It is new when there was none, and its header could
// be written; on a full disk it is empty.
func (j *Journal) begin(missing bool) (isNew bool, err error) {
	full := j.replace(nil, nil)
	if full == nil {
		return missing, nil
	}
	j.opts.Logger.Error("the journal is begun when there is room for it", "error", full)
	if j.file, err = os.OpenFile(j.path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return false, fmt.Errorf("cannot open the journal: %w", errors.Join(full, err))
	}
	j.pending, err = encode(headerKey, j.header())
	return false, err
}

func (j *Journal) header() header {
	return header{Version: version, BootID: j.opts.BootID, At: j.opts.Now().UTC()}
}

// Append adds a record, anything that encoding/json can marshal. When it
// returns nil the record survives the end of this process. When it returns an
// error, a full disk for instance, the file is as it was before, and a later
// Append may work again.
func (j *Journal) Append(record any) error {
	line, err := encode(recordKey, record)
	if err != nil {
		return fmt.Errorf("cannot encode a record for the journal: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return ErrClosed
	}
	if j.torn {
		if err := j.repair(); err != nil {
			return fmt.Errorf("cannot append to the journal: %w", err)
		}
	}
	if len(j.pending) > 0 {
		line = append(j.pending, line...)
	}
	if _, err := j.file.WriteAt(line, j.size); err != nil {
		j.torn = true
		return fmt.Errorf("cannot append to the journal: %w", errors.Join(err, j.repair()))
	}
	j.size += int64(len(line))
	j.pending = nil
	select {
	case j.work <- struct{}{}:
	default:
	}
	return nil
}

// repair cuts off what a failed write may have left behind the last whole
// line. The caller holds mu.
func (j *Journal) repair() error {
	if err := j.file.Truncate(j.size); err != nil {
		return fmt.Errorf("cannot cut off half a record: %w", err)
	}
	j.torn = false
	return nil
}

// Sync returns when all that was appended before the call is on the disk, to
// survive a crash of the machine.
func (j *Journal) Sync() error {
	j.slow.Lock()
	defer j.slow.Unlock()
	if j.isClosed() {
		return ErrClosed
	}
	return j.flush()
}

// flush needs slow held, which keeps the file from being exchanged or closed.
func (j *Journal) flush() error {
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("cannot flush the journal to the disk: %w", err)
	}
	return nil
}

func (j *Journal) isClosed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.closed
}

// Close flushes the journal, ends its goroutine and closes the file. It waits
// for a Snapshot that runs, so the caller must not hold what Snapshot locks. A
// second Close does nothing.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	close(j.quit)
	j.mu.Unlock()
	<-j.done
	j.slow.Lock()
	defer j.slow.Unlock()
	return errors.Join(j.flush(), j.file.Close())
}

// run flushes and compacts in the background until Close.
func (j *Journal) run() {
	defer close(j.done)
	for {
		select {
		case <-j.quit:
			return
		case <-j.work:
		}
		select {
		case <-j.quit:
			return
		case <-time.After(flushDelay):
		}
		var err error
		if j.isLarge() {
			err = j.Compact()
		} else {
			err = j.Sync()
		}
		if err != nil && !errors.Is(err, ErrClosed) {
			j.opts.Logger.Error("the journal is not safe from a crash of the machine", "error", err)
		}
	}
}
