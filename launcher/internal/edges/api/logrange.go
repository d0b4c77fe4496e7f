package api

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"hotseat.dev/hotseat/launcher"
)

// malformedRangeError reports a Range header that no log can serve: status 400.
type malformedRangeError struct {
	header string
	reason string
}

func (e *malformedRangeError) Error() string {
	return fmt.Sprintf("cannot serve the range %q: %s", e.header, e.reason)
}

// parseRange reads the value of a Range header: "bytes=a-b" or "bytes=a-",
// offsets from 0, both ends included (RFC 9110 section 14.1.2). The empty
// header is the zero range. For every other header, such as "bytes=-n" or one with
// several ranges, the error is a *malformedRangeError.
func parseRange(header string) (launcher.LogRange, error) {
	if header == "" {
		return launcher.LogRange{}, nil
	}
	malformed := func(reason string) (launcher.LogRange, error) {
		return launcher.LogRange{}, &malformedRangeError{header, reason}
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
	var r launcher.LogRange
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

// parseOffset reads a number. It replaces a number that is too large by the largest
// int64.
func parseOffset(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil || errors.Is(err, strconv.ErrRange)
}
