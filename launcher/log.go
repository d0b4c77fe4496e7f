package launcher

import (
	"fmt"
	"io"
)

// LogRange is a part of an instance's log. The zero LogRange begins at the start of the
// log and has no end.
type LogRange struct {
	First   int64 // offset of the first byte
	Last    int64 // offset of the last byte, inclusive; only if Bounded
	Bounded bool  // the range has an end; a read without an end is limited
}

// LogPart is a part of a log that can be read. The caller closes it.
type LogPart struct {
	First  int64 // offset of the first byte
	Length int64 // number of bytes of the part
	Total  int64 // number of bytes of the whole log

	io.ReadCloser
}

// LogRangeError reports a range of which the log has no byte: it begins at the end of the
// log or beyond it, or it ends before Begin.
type LogRangeError struct {
	First, Total int64
	Begin        int64 // offset of the first byte that was not dropped
}

func (e *LogRangeError) Error() string {
	if e.First < e.Begin {
		return fmt.Sprintf("cannot read from byte %d: the log begins at byte %d, since what was before was dropped (log_max_bytes)", e.First, e.Begin)
	}
	return fmt.Sprintf("cannot read from byte %d: the log has %d bytes", e.First, e.Total)
}
