package modelsource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// heard reads the lines that a program writes.
type heard struct {
	note  func(text string)
	alive func()
	stop  func() // ends the program

	opened chan struct{} // closed when the line opened has come
	offset int64         // where the content begins; valid after opened is closed

	manifest *fetchapi.Manifest
	refusal  *fetchapi.Error // the error that the program reports
	wrong    error           // what is wrong with the program's lines
	partial  []byte          // of a line that is not whole yet
}

// Bounds of a program's lines. The longest valid manifest fits into maxLine: the most files,
// with the longest names.
const (
	maxLine = 160 << 20
	maxText = 1000 // of a note, and of excerpts in messages
)

// Write takes some of the program's output. An invalid line ends the program.
func (h *heard) Write(b []byte) (int, error) {
	h.alive()
	for rest := b; len(rest) > 0; {
		line, more, whole := bytes.Cut(rest, []byte("\n"))
		h.partial = append(h.partial, line...)
		if len(h.partial) > maxLine {
			h.wrong = fmt.Errorf("wrote a line of more than %d bytes", maxLine)
		}
		if rest = more; whole && h.wrong == nil {
			h.wrong = h.take(h.partial)
			h.partial = nil
		}
		if h.wrong != nil {
			h.stop()
			return 0, h.wrong
		}
	}
	return len(b), nil
}

func (h *heard) take(text []byte) error {
	var line fetchapi.Line
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, &line); err != nil {
		return fmt.Errorf("wrote a line that is not JSON: %q", short(string(text)))
	}
	switch line.Type {
	case fetchapi.TypeManifest:
		if line.Manifest == nil {
			return errors.New("wrote a line manifest that has no manifest")
		}
		h.manifest = line.Manifest
	case fetchapi.TypeOpened:
		if _, twice := h.from(); twice {
			return errors.New("wrote the line opened twice")
		}
		h.offset = line.Offset
		close(h.opened)
	case fetchapi.TypeNote:
		h.note(short(line.Text))
	case fetchapi.TypeError:
		if line.Error == nil || line.Error.Detail == "" {
			return errors.New("wrote a line error that has no error or no detail")
		}
		h.refusal = &fetchapi.Error{Reason: line.Error.Reason, Detail: short(line.Error.Detail)}
	default:
		return fmt.Errorf("wrote a line of the unknown type %q; the type must be manifest, opened, note or error", line.Type)
	}
	return nil
}

// from returns where the content begins, once the line opened has come.
func (h *heard) from() (offset int64, said bool) {
	select {
	case <-h.opened:
		return h.offset, true
	default:
		return 0, false
	}
}

func short(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

// tail keeps the end of what a program writes to its standard error.
type tail struct{ text []byte }

func (t *tail) Write(b []byte) (int, error) {
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-maxText):]
	return len(b), nil
}

func (t *tail) said() string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.text), ""))
	if text == "" {
		return ""
	}
	return ": " + text
}
