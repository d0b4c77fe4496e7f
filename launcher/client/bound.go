package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxAnswer bounds an answer, one event of a stream, and the size of all instances
// that a stream has told of: a list of a thousand instances has a few MiB.
const maxAnswer = 32 << 20

var errTooLong = fmt.Errorf("is longer than %d MiB", maxAnswer>>20)

// IsTooLong says whether an answer or an event was given up since it was longer
// than any of a launcher's.
func IsTooLong(err error) bool { return errors.Is(err, errTooLong) }

// readAll reads an answer to its end.
func readAll(answer io.Reader) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(answer, maxAnswer+1))
	if err == nil && len(content) > maxAnswer {
		return nil, fmt.Errorf("it %w", errTooLong)
	}
	return content, err
}

// lines reads a stream line by line.
type lines struct{ *bufio.Scanner }

func linesOf(stream io.Reader) lines {
	l := lines{bufio.NewScanner(stream)}
	l.Buffer(make([]byte, 0, 1<<10), maxAnswer) // what one grows to stays as long as the stream
	l.Split(wholeLine)
	return l
}

// wholeLine is [bufio.ScanLines] without a last line that does not end: it is a part of one.
func wholeLine(text []byte, last bool) (taken int, line []byte, err error) {
	if last && bytes.IndexByte(text, '\n') < 0 {
		return len(text), nil, nil
	}
	return bufio.ScanLines(text, last)
}

// end is the error for which there is no next line.
func (l lines) end() error {
	switch err := l.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("an event %w", errTooLong)
	case err == nil:
		return io.ErrUnexpectedEOF
	default:
		return err
	}
}

// weights bound the size of what a watch has told of all its objects, since its
// readers keep them. Who watches a thousand launchers has a thousand of these, and most
// objects are short.
type weights struct {
	beyond map[string]int // bytes of long ones beyond shortBytes, by the object's id
	sum    int
}

// Each object takes up to keptBytes beside its text.
const (
	shortBytes = 1 << 10
	keptBytes  = 4<<10 + shortBytes
)

// put notes an object, beside so many others. The error is errTooLong.
func (w *weights) put(id string, bytes, others int) error {
	w.drop(id)
	if bytes > shortBytes {
		if w.beyond == nil {
			w.beyond = map[string]int{}
		}
		w.beyond[id] = bytes - shortBytes
		w.sum += bytes - shortBytes
	}
	if w.sum+others*keptBytes > maxAnswer {
		return errTooLong
	}
	return nil
}

func (w *weights) drop(id string) {
	w.sum -= w.beyond[id]
	delete(w.beyond, id)
}
