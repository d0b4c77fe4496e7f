package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// decode reads a body: first into an any, which is checked against the schema, and
// then into the type of the operation. No error names a Go type.
func decode(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("the body is not valid UTF-8")
	}
	if _, untyped := v.(*any); !untyped {
		data = wholeNumbers(data)
	}
	err := json.Unmarshal(data, v)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("the %s is out of range, or of the wrong type", wrong.Value)
	}
	return err
}

// maxExact is the largest number up to which a float64 tells every whole number
// from the next.
const maxExact = 1 << 53

// wholeNumbers writes each whole number of a JSON text without a fraction and an
// exponent: 1.0, 1e0 and 10E-1 are integers in JSON Schema, but not to Go's
// decoder.
func wholeNumbers(text []byte) []byte {
	var out []byte
	for len(text) > 0 {
		n := tokenLength(text)
		token := text[:n]
		text = text[n:]
		if (token[0] == '-' || isDigit(token[0])) && bytes.ContainsAny(token, ".eE") {
			if f, err := strconv.ParseFloat(string(token), 64); err == nil && f == math.Trunc(f) && math.Abs(f) <= maxExact {
				out = strconv.AppendInt(out, int64(f), 10)
				continue
			}
		}
		out = append(out, token...)
	}
	return out
}

// tokenLength is the length of the string or the number that a JSON text begins
// with; any other byte has the length 1.
func tokenLength(text []byte) int {
	n := 1
	switch c := text[0]; {
	case c == '"':
		for n < len(text) && text[n] != '"' {
			if text[n] == '\\' {
				n++
			}
			n++
		}
		n++ // the quote at the end
	case c == '-' || isDigit(c):
		for n < len(text) && (isDigit(text[n]) || bytes.IndexByte([]byte("+-.eE"), text[n]) >= 0) {
			n++
		}
	}
	return min(n, len(text))
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
