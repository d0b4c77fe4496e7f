package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Limits of the answers of a launcher. A launcher has few instances and models of a few KiB
// each, so a longer answer is not that of a launcher.
const (
	// maxAnswer limits the length of a text, and the cost of all elements of a list or of all
	// objects of a stream.
	maxAnswer = 32 << 20
	// maxObject limits the text of one object: an answer that is not a list, an element of a
	// list, or an event of a stream.
	maxObject = 4 << 20
	// maxCost limits the cost of one object.
	maxCost = 2 * maxObject
	// valueBytes is the memory of a decoded JSON value, beside its text: that of an element of
	// a list in an object.
	valueBytes = 64
)

// tooLongError means that an answer is longer than those of a launcher.
type tooLongError struct{ bytes int }

func (e *tooLongError) Error() string { return fmt.Sprintf("is longer than %d MiB", e.bytes>>20) }

// IsTooLong reports whether the client gave up an answer or an event because it was too long to
// come from a launcher.
func IsTooLong(err error) bool {
	_, is := errors.AsType[*tooLongError](err)
	return is
}

// costOf estimates the memory of a decoded JSON text. A text such as [{},{},{}] takes many
// times its own length.
func costOf(text []byte) int {
	values, quoted := 1, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == '{' || c == '['):
			values++
		}
	}
	return len(text) + valueBytes*values
}

// costWithin returns the cost of the text of one object, or an error if it is too high. what
// names the object in the error.
func costWithin(what string, text []byte) (int, error) {
	cost := costOf(text)
	if cost > maxCost {
		return 0, fmt.Errorf("%s %w once it is decoded", what, &tooLongError{maxCost})
	}
	return cost, nil
}

// readAll reads an answer to its end.
func readAll(answer io.Reader, most int) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(answer, int64(most)+1))
	if err == nil && len(content) > most {
		return nil, fmt.Errorf("it %w", &tooLongError{most})
	}
	return content, err
}

// lines reads a stream line by line.
type lines struct{ *bufio.Scanner }

func linesOf(stream io.Reader) lines {
	l := lines{bufio.NewScanner(stream)}
	l.Buffer(make([]byte, 0, 1<<10), maxObject) // the buffer does not shrink again
	l.Split(wholeLine)
	return l
}

// wholeLine is [bufio.ScanLines], but drops a last line without a line end, which is incomplete.
func wholeLine(text []byte, last bool) (taken int, line []byte, err error) {
	if last && bytes.IndexByte(text, '\n') < 0 {
		return len(text), nil, nil
	}
	return bufio.ScanLines(text, last)
}

// end returns why there is no next line.
func (l lines) end() error {
	switch err := l.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("an event %w", &tooLongError{maxObject})
	case err == nil:
		return io.ErrUnexpectedEOF
	default:
		return err
	}
}

// weights limits the cost of all objects of a watch, because its readers keep them. A program
// that watches a thousand launchers has a thousand of these, and most objects are short.
type weights struct {
	beyond map[string]int // cost of long ones beyond shortBytes, by the object's id
	sum    int
}

// Each object counts for keptBytes, and for its cost beyond shortBytes.
const (
	shortBytes = 8 << 10
	keptBytes  = 4<<10 + shortBytes
)

// put records the cost of an object. others is the number of the other objects.
func (w *weights) put(id string, cost, others int) error {
	w.drop(id)
	if cost > shortBytes {
		if w.beyond == nil {
			w.beyond = map[string]int{}
		}
		w.beyond[id] = cost - shortBytes
		w.sum += cost - shortBytes
	}
	if w.sum+others*keptBytes > maxAnswer {
		return &tooLongError{maxAnswer}
	}
	return nil
}

func (w *weights) drop(id string) {
	w.sum -= w.beyond[id]
	delete(w.beyond, id)
}

// costOfEvent returns the cost of an event's object, which is not decoded yet.
func costOfEvent(object []byte) (int, error) {
	return costWithin("cannot follow the watch stream: an event", object)
}
