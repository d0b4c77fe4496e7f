package outlog

import (
	"fmt"
	"io"
	"os"

	"hotseat.dev/hotseat/launcher"
)

// MaxOpenEnded is how many bytes a read without a last offset gets at most.
const MaxOpenEnded = 1 << 20

// part reads a section of an open file.
type part struct {
	*io.SectionReader
	file *os.File
}

// Close gives the file back.
func (p part) Close() error { return p.file.Close() }

// Read opens the part of a log that a range asks for; the caller closes it. The part ends
// at the latest where the log ended when Read was called. If the range has no end, the
// part has at most MaxOpenEnded bytes. The error is a *[launcher.LogRangeError] if the log
// has no byte at the range's start, which includes every range of an empty log. The error
// has fs.ErrNotExist in its chain if there is no such log.
func (s *Store) Read(name string, r launcher.LogRange) (*launcher.LogPart, error) {
	f, err := s.open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("cannot read the log %q: %w", name, err)
	}
	total := info.Size()
	if r.First < 0 || r.First >= total {
		_ = f.Close()
		return nil, &launcher.LogRangeError{First: r.First, Total: total}
	}
	length := min(total-r.First, MaxOpenEnded)
	if r.Bounded {
		length = min(total-1, r.Last) - r.First + 1
	}
	return &launcher.LogPart{
		First:      r.First,
		Length:     length,
		Total:      total,
		ReadCloser: part{io.NewSectionReader(f, r.First, length), f},
	}, nil
}
