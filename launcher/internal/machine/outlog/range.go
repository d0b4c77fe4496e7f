package outlog

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// MaxOpenEnded is how many bytes a read without a last offset gets at most.
const MaxOpenEnded = 1 << 20

// Range is the part of a log that a request asks for. The zero Range stands for a
// request without a Range header: from the start, open-ended.
type Range struct {
	// Given says that there was a Range header.
	Given bool
	// First is the offset of the first byte.
	First int64
	// Last is the offset of the last byte, inclusive, when Bounded is set; else at
	// most MaxOpenEnded bytes are read.
	Last    int64
	Bounded bool
}

// MalformedRangeError is a Range header that is refused whatever the log
// holds: status 400.
type MalformedRangeError struct {
	Header string
	Reason string
}

func (e *MalformedRangeError) Error() string {
	return fmt.Sprintf("cannot serve the range %q: %s", e.Header, e.Reason)
}

// UnsatisfiableRangeError is a range that begins at the end of the log or
// beyond it: status 416.
type UnsatisfiableRangeError struct {
	First, Total int64
}

func (e *UnsatisfiableRangeError) Error() string {
	return fmt.Sprintf("cannot read from byte %d: the log has %d bytes", e.First, e.Total)
}

// ContentRange is the value of the answer's Content-Range header.
func (e *UnsatisfiableRangeError) ContentRange() string {
	return fmt.Sprintf("bytes */%d", e.Total)
}

// ParseRange reads the value of a Range header: "bytes=a-b" or "bytes=a-",
// offsets from 0, both ends included (RFC 9110 section 14.1.2). The empty
// header is the zero Range. Everything else, the suffix form "bytes=-n" and
// several ranges with it, is a *MalformedRangeError.
func ParseRange(header string) (Range, error) {
	if header == "" {
		return Range{}, nil
	}
	malformed := func(reason string) (Range, error) {
		return Range{}, &MalformedRangeError{Header: header, Reason: reason}
	}
	unit, spec, found := strings.Cut(header, "=")
	if !found || !strings.EqualFold(unit, "bytes") {
		return malformed("the only unit is bytes, as in bytes=0-99")
	}
	if strings.Contains(spec, ",") {
		return malformed("only one range can be asked for at a time")
	}
	first, last, found := strings.Cut(spec, "-")
	if !found {
		return malformed("a range is written first-last or first-")
	}
	if first == "" {
		return malformed("a range must name its first byte")
	}
	r := Range{Given: true}
	var ok bool
	if r.First, ok = parseOffset(first); !ok {
		return malformed("the first byte is not a number")
	}
	if last == "" {
		return r, nil
	}
	r.Bounded = true
	if r.Last, ok = parseOffset(last); !ok {
		return malformed("the last byte is not a number")
	}
	if r.Last < r.First {
		return malformed("the last byte is before the first")
	}
	return r, nil
}

// parseOffset reads a number; one that is too large for an int64 becomes the
// largest.
func parseOffset(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil || errors.Is(err, strconv.ErrRange)
}

// Part is a part of a log, to be read from and closed. It ends at the latest where
// the log ended when Read was called.
type Part struct {
	// Status is 206 when a range was asked for, else 200.
	Status int
	// ContentRange is the value of the Content-Range header, as in
	// "bytes 0-99/1234".
	ContentRange string
	// Length is how many bytes the part has.
	Length int64
	// Total is how many bytes the log has.
	Total int64

	*io.SectionReader
	file *os.File
}

// Close gives the file back.
func (p *Part) Close() error { return p.file.Close() }

// Read opens the part of a log that a range asks for; the caller closes it.
// The error is an *UnsatisfiableRangeError when the log has no byte at the
// range's start (so an empty log has no readable range at all), and has
// fs.ErrNotExist in its chain when there is no such log.
func (s *Store) Read(name string, r Range) (*Part, error) {
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
		return nil, &UnsatisfiableRangeError{First: r.First, Total: total}
	}
	length := min(total-r.First, MaxOpenEnded)
	if r.Bounded {
		length = min(total-1, r.Last) - r.First + 1
	}
	status := http.StatusOK
	if r.Given {
		status = http.StatusPartialContent
	}
	return &Part{
		Status:        status,
		ContentRange:  fmt.Sprintf("bytes %d-%d/%d", r.First, r.First+length-1, total),
		Length:        length,
		Total:         total,
		SectionReader: io.NewSectionReader(f, r.First, length),
		file:          f,
	}, nil
}
