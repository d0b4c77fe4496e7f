package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func (j *Journal) isLarge() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.opts.Snapshot != nil && j.size >= j.compactAt
}

// Compact replaces the file by one that holds what Snapshot gives and what was
// appended since Snapshot was called. A crash at any point leaves either the
// old file or the new one, whole, and so does an error.
func (j *Journal) Compact() error {
	if j.opts.Snapshot == nil {
		return errors.New("cannot compact the journal: there is no snapshot function")
	}
	j.slow.Lock()
	defer j.slow.Unlock()
	j.mu.Lock()
	from, closed := j.size, j.closed
	j.mu.Unlock()
	if closed {
		return ErrClosed
	}
	records, err := j.opts.Snapshot()
	if err == nil {
		err = j.exchange(records, from)
	}
	if err != nil {
		j.mu.Lock()
		j.compactAt = j.size + j.opts.MaxBytes // not again at the very next record
		j.mu.Unlock()
		return fmt.Errorf("cannot compact the journal: %w", err)
	}
	return nil
}

// exchange puts a new file in the place of the old one: a header, the records,
// and what the old file holds from the offset on. The caller holds slow.
func (j *Journal) exchange(records []any, from int64) error {
	fresh, size, err := j.writeFresh(records)
	if err != nil {
		return err
	}
	j.mu.Lock()
	old := j.file
	grown, err := io.Copy(io.NewOffsetWriter(fresh, size), io.NewSectionReader(old, from, j.size-from))
	if err == nil && j.damaged {
		_, err = j.setAside()
	}
	if err == nil {
		err = os.Rename(fresh.Name(), j.path)
	}
	if err != nil {
		j.mu.Unlock()
		return errors.Join(err, fresh.Close(), os.Remove(fresh.Name()))
	}
	j.file, j.size, j.torn, j.pending, j.damaged = fresh, size+grown, false, nil, false
	j.compactAt = max(j.opts.MaxBytes, 2*j.size)
	j.mu.Unlock()
	return errors.Join(old.Close(), j.flush(), syncFolder(j.path))
}

// replace puts a new file with the records in the place of whatever is there.
// moveAway, when not nil, is called before that, to keep the old one. Only Open
// uses it.
func (j *Journal) replace(records []json.RawMessage, moveAway func() error) error {
	values := make([]any, len(records))
	for i, r := range records {
		values[i] = r
	}
	fresh, size, err := j.writeFresh(values)
	if err != nil {
		return fmt.Errorf("cannot write a new journal: %w", err)
	}
	if moveAway != nil {
		err = moveAway()
	}
	if err == nil {
		err = os.Rename(fresh.Name(), j.path)
	}
	if err != nil {
		return fmt.Errorf("cannot put a new journal in place: %w", errors.Join(err, fresh.Close()))
	}
	j.file, j.size = fresh, size
	if err := syncFolder(j.path); err != nil {
		j.opts.Logger.Error("the new journal is not safe from a crash of the machine", "error", err)
	}
	return nil
}

// replaceBroken keeps the damaged file aside and goes on with one that holds
// what was good in it. Where there is no room for that, it goes on with the
// damaged file itself, which the next Open, or compaction, sets aside.
func (j *Journal) replaceBroken(found Found, data []byte) error {
	full := j.replace(found.Records, func() (err error) {
		found.Broken.SetAside, err = j.setAside()
		return err
	})
	if full == nil {
		return nil
	}
	j.opts.Logger.Error("the damaged journal stays in use until there is room for another", "error", full)
	if aside := found.Broken.SetAside; aside != "" && !exists(j.path) {
		full = errors.Join(full, os.Rename(aside, j.path))
	}
	found.Broken.SetAside, j.damaged = j.path, true
	f, err := os.OpenFile(j.path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("cannot open the journal: %w", errors.Join(full, err))
	}
	j.file, j.size = f, int64(len(data))
	if j.pending, err = encode(headerKey, j.header()); !bytes.HasSuffix(data, []byte("\n")) {
		j.pending = append([]byte("\n"), j.pending...)
	}
	return err
}

// setAside gives the file a second name, so that there is a journal at every
// moment. A file system that knows no second names has it renamed.
func (j *Journal) setAside() (aside string, err error) {
	stamp := j.opts.Now().UTC().Format("20060102T150405.000Z")
	aside = j.path + ".broken-" + stamp
	for n := 2; exists(aside); n++ {
		aside = fmt.Sprintf("%s.broken-%s-%d", j.path, stamp, n)
	}
	if err = os.Link(j.path, aside); errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) {
		err = os.Rename(j.path, aside)
	}
	if err != nil {
		return "", fmt.Errorf("cannot keep the damaged journal aside: %w", err)
	}
	return aside, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// writeFresh writes a journal of a header and the records beside the old one
// and flushes it. It returns the file, open, and its size. On an error nothing
// is left of it.
func (j *Journal) writeFresh(records []any) (*os.File, int64, error) {
	content, err := encode(headerKey, j.header())
	if err != nil {
		return nil, 0, err
	}
	for _, r := range records {
		line, err := encode(recordKey, r)
		if err != nil {
			return nil, 0, err
		}
		content = append(content, line...)
	}
	f, err := os.OpenFile(j.path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, 0, err
	}
	if _, err = f.Write(content); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return f, int64(len(content)), nil
}

// syncFolder makes a rename in the folder of path survive a crash of the
// machine.
func syncFolder(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
