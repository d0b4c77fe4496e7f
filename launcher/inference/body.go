package inference

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

// Limits bound the bodies of requests, in bytes.
type Limits struct {
	JSON int64
	// Form is for multipart/form-data. A form whose field model comes last is held in
	// memory, once, up to this bound.
	Form int64
	// AnyContentType takes every body that is no form for JSON, as Ollama does: curl
	// sends application/x-www-form-urlencoded by default. Otherwise a JSON body must say
	// that it is one, as for vLLM.
	AnyContentType bool
	// Memory is for all requests together; nil: no bound. A request that it has no room for
	// is refused with 503.
	Memory *Memory
}

// Body is the body of a request whose model is known. It reads as the whole body, byte by
// byte as the client sent it, except for what Rewrite changed. Read checks the bytes that
// the client sends later, and returns an *Error for their mistakes.
//
// A Body is used by one goroutine at a time.
type Body struct {
	Model string

	source io.Reader
	form   bool
	scan   interface {
		feed(data []byte) error
		end() error
	}
	limit   int64
	arrived int64
	length  int64 // of what Read gives in all; -1: unknown
	held    chunks
	read    int64 // bytes of held that Read has given
	ended   bool
	failed  error

	found            bool
	valStart, valEnd int64 // of the model
	stream           []byte
}

// ReadModel reads the body of a request up to its model. It reads no further than it must:
// the rest comes by Read. It does not look for a second model there before the client's
// bytes arrive; Complete does. The caller closes the Body. The error is an *Error, or that
// of the connection.
func ReadModel(r *http.Request, limits Limits) (*Body, error) {
	b := &Body{source: r.Body, limit: limits.JSON, length: r.ContentLength, held: chunks{memory: limits.Memory}}
	// A type whose parameters alone are malformed comes with an error, and without them.
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case kind == "multipart/form-data":
		if params["boundary"] == "" {
			return nil, invalid(CodeNotForm, "", "the content type multipart/form-data has no boundary")
		}
		b.form, b.limit = true, limits.Form
		f := newFormScanner(params["boundary"])
		f.done = b.formModel
		b.scan = f
	case limits.AnyContentType, kind == "application/json", strings.HasSuffix(kind, "+json"):
		b.scan = &scanner{done: b.member}
	default:
		return nil, invalid(CodeContentType, "", "the content type must be application/json or multipart/form-data, not %q", r.Header.Get("Content-Type"))
	}
	if r.ContentLength > b.limit {
		return nil, errTooLarge(b.limit)
	}
	if err := b.find(); err != nil {
		b.held.release()
		return nil, err
	}
	return b, nil
}

// find reads up to the model.
func (b *Body) find() error {
	for !b.found {
		if err := b.pull(); err != nil {
			return err
		}
		if b.ended && !b.found {
			return invalid(CodeModelMissing, "model", "the request lacks the field model: say which model is to answer")
		}
	}
	return nil
}

// pull reads the next bytes of the client into held.
func (b *Body) pull() error {
	if b.failed != nil {
		return b.failed
	}
	room := b.held.room()
	if room == nil {
		b.failed = &Error{
			Status: http.StatusServiceUnavailable, Code: CodeNoMemory, RetryAfter: time.Second,
			Message: "the bodies of other requests take all memory that there is for them: try again",
		}
		return b.failed
	}
	n, err := b.source.Read(room)
	b.held.grow(n)
	b.arrived += int64(n)
	b.failed = b.check(room[:n], err)
	return b.failed
}

func (b *Body) check(data []byte, err error) error {
	if b.arrived > b.limit {
		return errTooLarge(b.limit)
	}
	if err := b.scan.feed(data); err != nil {
		return b.explain(err)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		b.ended = true
		return b.explain(b.scan.end())
	case errors.Is(err, io.ErrUnexpectedEOF):
		return invalid(CodeCutOff, "", "the body was cut off after %d bytes", b.arrived)
	}
	return fmt.Errorf("cannot read the body: %w", err)
}

// explain makes an *Error of an error of the scanner.
func (b *Body) explain(err error) error {
	if err == nil {
		return nil
	}
	if known := (*Error)(nil); errors.As(err, &known) {
		return known
	}
	if b.form {
		return invalid(CodeNotForm, "", "%v", err)
	}
	return invalid(CodeNotJSON, "", "%v", err)
}

// member notes the members of a JSON body that a front door reads.
func (b *Body) member(m member, raw []byte) error {
	switch m.key {
	case "model":
		if raw[0] != '"' {
			return invalid(CodeModelType, "model", "model must be a string, not %s", kindOf(raw[0]))
		}
		var model string
		if json.Unmarshal(raw, &model) != nil {
			return errLongModel()
		}
		return b.setModel(model, m.valStart, m.valEnd)
	case "stream":
		b.stream = append([]byte{}, raw...)
	}
	return nil
}

func (b *Body) formModel(value string, valStart, valEnd int64) error {
	return b.setModel(value, valStart, valEnd)
}

func (b *Body) setModel(model string, valStart, valEnd int64) error {
	if b.found {
		return invalid(CodeModelTwice, "model", "the request names a model twice: name one")
	}
	if model == "" {
		return invalid(CodeModelMissing, "model", "the field model is empty: say which model is to answer")
	}
	b.Model, b.found, b.valStart, b.valEnd = model, true, valStart, valEnd
	return nil
}

// Read gives the whole body, with what Rewrite changed.
func (b *Body) Read(p []byte) (int, error) {
	for b.read == b.held.length {
		if b.ended && b.failed == nil {
			return 0, io.EOF
		}
		if b.read > 0 {
			b.held.reset()
			b.read = 0
		}
		if err := b.pull(); err != nil {
			return 0, err
		}
	}
	n := b.held.readAt(p, b.read)
	b.read += int64(n)
	return n, nil
}

// Complete reads what the client has not sent yet into memory, and so checks the body to
// its end. It must come before the first Read.
func (b *Body) Complete() error {
	for !b.ended {
		if err := b.pull(); err != nil {
			return err
		}
	}
	b.length = b.held.length
	return nil
}

// Ahead reads up to most bytes, from the first one on, of what the client sends into memory. It
// reports whether that is the whole body. It must come before the first Read.
func (b *Body) Ahead(most int64) (whole bool, err error) {
	for !b.ended && b.held.length < most {
		if err := b.pull(); err != nil {
			return false, err
		}
	}
	if b.ended {
		b.length = b.held.length
	}
	return b.ended, nil
}

// Replay gives the whole body after Complete, each time from its beginning.
func (b *Body) Replay() io.Reader { return &replay{of: &b.held} }

// Close forgets the body and gives its memory back. It does not close the request's.
func (b *Body) Close() error {
	b.held.release()
	b.read, b.failed = 0, http.ErrBodyReadAfterClose
	return nil
}

// Length is how many bytes Read gives in all; -1: unknown.
func (b *Body) Length() int64 { return b.length }

// Streams reports whether the client asks for a stream, and whether it says so or not at
// all. It is certain only after Complete.
func (b *Body) Streams() (stream, given bool) { return string(b.stream) == "true", b.stream != nil }

// Rewrite changes the name of the model, and the parameters of a JSON body. If there are
// parameters to change, it completes the body first; those of a form stay. It must come
// before the first Read, and only once.
func (b *Body) Rewrite(model string, p Params) error {
	if !b.form && len(p.Strip)+len(p.Set) > 0 {
		if err := b.Complete(); err != nil {
			return err
		}
		changed, err := Rewrite(b.held.join(), model, p)
		if err != nil {
			return b.explain(err)
		}
		b.held.replace(changed)
		b.length = b.held.length
		return nil
	}
	if model == b.Model {
		return nil
	}
	value := []byte(model)
	if !b.form {
		value = quote(model)
	}
	// All bytes are held up to the model, since Read has given none.
	b.held.splice(b.valStart, b.valEnd, value)
	if b.length >= 0 {
		b.length += int64(len(value)) - (b.valEnd - b.valStart)
	}
	return nil
}

// kindOf names the type of a JSON value by its first byte.
func kindOf(first byte) string {
	switch first {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}
