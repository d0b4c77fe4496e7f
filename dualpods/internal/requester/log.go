package requester

import (
	"context"
	"fmt"
	"io"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// logRelay writes the log of the inference server, each byte once.
type logRelay struct {
	out io.Writer
	// turn is held by whoever writes; a write can wait for whoever reads it.
	turn    chan struct{}
	binding string // whose log it was last
	next    int64
}

func newLogRelay(out io.Writer) *logRelay {
	return &logRelay{out: out, turn: make(chan struct{}, 1)}
}

// add writes what is new of a chunk that begins at start. The log of a binding
// other than the last one's begins where its first chunk does; a caller that
// names none has one log, which begins at 0.
func (l *logRelay) add(ctx context.Context, binding string, start int64, chunk []byte) (requesterapi.LogPosition, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return requesterapi.LogPosition{}, ctx.Err()
	}
	if binding != "" && binding != l.binding {
		l.binding, l.next = binding, start
	}
	if start > l.next {
		f := failed(requesterapi.CodeLogGap, "the chunk begins at %d, but the log ends at %d: send what is between them first", start, l.next)
		next := l.next
		f.NextPos = &next
		return requesterapi.LogPosition{}, f
	}
	known := l.next - start
	if known >= int64(len(chunk)) {
		return requesterapi.LogPosition{NextPos: l.next}, nil
	}
	written, err := l.out.Write(chunk[known:])
	l.next += int64(written)
	if err != nil {
		return requesterapi.LogPosition{}, fmt.Errorf("cannot write the log: %w", err)
	}
	return requesterapi.LogPosition{NextPos: l.next, Written: written}, nil
}
