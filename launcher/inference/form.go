package inference

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/textproto"
	"strings"
)

// formScanner reads multipart/form-data as its bytes arrive, in any portions. It holds no
// more than a field's headers and the value of the field model.
type formScanner struct {
	delimiter []byte // with the line end before it
	held      []byte // bytes that are not read yet
	base      int64  // offset of the first of them
	state     formState
	isModel   bool // the current part is the field model
	valStart  int64

	done func(value string, valStart, valEnd int64) error
}

type formState int

const (
	inContent formState = iota
	afterDelimiter
	inHeaders
	atFormEnd
)

// mostHeaders bounds the headers of one part.
const mostHeaders = 16 << 10

var errNoForm = errors.New("the body is no multipart form")

func newFormScanner(boundary string) *formScanner {
	// The first delimiter may be at the very beginning, without a line end before it.
	return &formScanner{delimiter: []byte("\r\n--" + boundary), held: []byte("\r\n"), base: -2}
}

func (f *formScanner) feed(data []byte) error {
	if f.state == atFormEnd {
		return nil // an epilogue is ignored
	}
	f.held = append(f.held, data...)
	for {
		more, err := f.step()
		if err != nil || !more {
			return err
		}
	}
}

func (f *formScanner) end() error {
	if f.state == atFormEnd {
		return nil
	}
	return fmt.Errorf("%w: its last boundary is missing", errNoForm)
}

func (f *formScanner) drop(n int) {
	f.held = f.held[:copy(f.held, f.held[n:])]
	f.base += int64(n)
}

// step reads one part of the held bytes. It reports whether there may be another one.
func (f *formScanner) step() (more bool, err error) {
	switch f.state {
	case inContent:
		return f.content()
	case afterDelimiter:
		return f.lineAfterDelimiter()
	case inHeaders:
		return f.headers()
	default:
		return false, nil
	}
}

func (f *formScanner) content() (bool, error) {
	at := bytes.Index(f.held, f.delimiter)
	if at < 0 {
		if !f.isModel {
			f.drop(max(0, len(f.held)-len(f.delimiter)+1))
		} else if len(f.held) > mostCaptured+len(f.delimiter) {
			return false, errLongModel()
		}
		return false, nil
	}
	if f.isModel {
		f.isModel = false
		if err := f.done(string(f.held[:at]), f.valStart, f.base+int64(at)); err != nil {
			return false, err
		}
	}
	f.drop(at + len(f.delimiter))
	f.state = afterDelimiter
	return true, nil
}

func (f *formScanner) lineAfterDelimiter() (bool, error) {
	if len(f.held) < 2 {
		return false, nil
	}
	if bytes.HasPrefix(f.held, []byte("--")) {
		f.state, f.held = atFormEnd, nil
		return false, nil
	}
	line, _, found := bytes.Cut(f.held, []byte("\r\n"))
	padding := bytes.TrimRight(line, "\r")
	switch {
	case len(bytes.Trim(padding, " \t")) > 0:
		f.state = inContent // the boundary is the beginning of a longer word
	case found:
		f.drop(len(line)) // the line end belongs to the headers, which may be none
		f.state = inHeaders
	case len(line) > mostHeaders:
		return false, fmt.Errorf("%w: a boundary is followed by too many blanks", errNoForm)
	default:
		return false, nil
	}
	return true, nil
}

func (f *formScanner) headers() (bool, error) {
	blank := []byte("\r\n\r\n")
	at := bytes.Index(f.held, blank)
	if at < 0 {
		if len(f.held) > mostHeaders {
			return false, fmt.Errorf("%w: the headers of a part are too long", errNoForm)
		}
		return false, nil
	}
	f.isModel = isModelField(string(f.held[:at]))
	f.drop(at + len(blank))
	f.valStart = f.base
	f.state = inContent
	if f.isModel {
		return true, nil
	}
	// A part without content is followed by the delimiter, whose line end is already read.
	f.held = append([]byte("\r\n"), f.held...)
	f.base -= 2
	return true, nil
}

// isModelField reports whether the headers of a part say that it is the field model, and
// no file.
func isModelField(headers string) bool {
	for line := range strings.SplitSeq(headers, "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		if textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)) != "Content-Disposition" {
			continue
		}
		kind, params, err := mime.ParseMediaType(value)
		_, isFile := params["filename"]
		return err == nil && kind == "form-data" && params["name"] == "model" && !isFile
	}
	return false
}
