package outlog

import (
	"fmt"
	"io"
	"os"

	"hotseat.dev/hotseat/launcher"
)

// MaxOpenEnded is how many bytes a read without a last offset gets at most.
const MaxOpenEnded = 1 << 20

// part reads a section of a log. It fails when the log loses the rest of the section
// meanwhile.
type part struct {
	*io.SectionReader
	file *os.File
}

// Close gives the file back.
func (p part) Close() error { return p.file.Close() }

// kept reads what an open log still has.
type kept struct {
	store *Store
	file  *os.File
}

// ReadAt implements [io.ReaderAt].
func (k kept) ReadAt(p []byte, at int64) (int, error) { return k.store.readKept(k.file, p, at) }

// Read opens the part of a log that a range asks for; the caller closes it. The part
// begins with the first byte of the range that the log still has. It ends at the latest
// where the log ended when Read was called. If the range has no end, the part has at most
// MaxOpenEnded bytes. The error is a *[launcher.LogRangeError] if the log has no byte of
// the range, which includes every range of an empty log. The error has fs.ErrNotExist in
// its chain if there is no such log.
func (s *Store) Read(name string, r launcher.LogRange) (*launcher.LogPart, error) {
	f, err := s.open(name)
	if err != nil {
		return nil, err
	}
	begin, total, err := s.extent(f)
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("cannot read the log %q: %w", name, err)
	}
	first := max(r.First, begin)
	if r.First < 0 || first >= total || r.Bounded && r.Last < first {
		_ = f.Close()
		return nil, &launcher.LogRangeError{First: r.First, Begin: begin, Total: total}
	}
	length := min(total-first, MaxOpenEnded)
	if r.Bounded {
		length = min(total-1, r.Last) - first + 1
	}
	return &launcher.LogPart{
		First:      first,
		Length:     length,
		Total:      total,
		ReadCloser: part{io.NewSectionReader(kept{s, f}, first, length), f},
	}, nil
}
