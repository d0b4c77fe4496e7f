package client

import (
	"bufio"
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
	l.Buffer(nil, maxAnswer)
	return l
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
// readers keep them.
type weights struct {
	each map[string]int // bytes, by the object's id
	sum  int
}

// put notes an object. Each takes up to keptBytes beside its text. The error is
// errTooLong.
func (w *weights) put(id string, bytes int) error {
	const keptBytes = 4 << 10
	w.drop(id)
	if w.each == nil {
		w.each = map[string]int{}
	}
	w.each[id] = bytes + keptBytes
	if w.sum += w.each[id]; w.sum > maxAnswer {
		return errTooLong
	}
	return nil
}

func (w *weights) drop(id string) {
	w.sum -= w.each[id]
	delete(w.each, id)
}
