package outlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// maxLineBytes bounds a line of a tail, without the ellipsis.
const maxLineBytes = 2048

// Tail returns the last lines of a log, the oldest first: at most so many lines, out of its
// last maxBytes bytes. The lines are made for a report: without line ends, in valid UTF-8,
// with long lines cut. If a line rewrites itself by carriage returns, as progress bars do,
// Tail returns only its last text.
func (s *Store) Tail(name string, lines, maxBytes int) ([]string, error) {
	f, err := s.open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	s.cuts.RLock()
	defer s.cuts.RUnlock()
	begin, size, err := extentOf(f)
	if err != nil {
		return nil, fmt.Errorf("cannot read the log %q: %w", name, err)
	}
	start := max(begin, size-int64(maxBytes))
	buf := make([]byte, size-start)
	n, err := f.ReadAt(buf, start)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("cannot read the log %q: %w", name, err)
	}
	return tailLines(buf[:n], lines, start > 0), nil
}

// tailLines returns the last lines of data. If cut is set, data begins somewhere inside the
// log, and its first line is left out unless it is the only one.
func tailLines(data []byte, lines int, cut bool) []string {
	data = bytes.TrimSuffix(data, []byte("\n"))
	if len(data) == 0 || lines < 1 {
		return nil
	}
	all := bytes.Split(data, []byte("\n"))
	if cut && len(all) > 1 {
		all = all[1:]
	}
	all = all[max(0, len(all)-lines):]
	out := make([]string, len(all))
	for i, line := range all {
		out[i] = readable(line)
	}
	return out
}

func readable(line []byte) string {
	line = bytes.TrimRight(line, "\r")
	line = line[bytes.LastIndexByte(line, '\r')+1:]
	text := strings.ToValidUTF8(string(line), string(utf8.RuneError))
	if len(text) <= maxLineBytes {
		return text
	}
	end := maxLineBytes
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
