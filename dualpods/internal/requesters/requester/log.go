package requester

import (
	"context"
	"fmt"
	"io"
	"sync"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// logRelay writes the log of the inference server, each byte once.
type logRelay struct {
	out io.Writer
	// turn is held by whoever writes; a write can wait for whoever reads it.
	turn chan struct{}
	mu   sync.Mutex
	log  requesterapi.Log // that was written last; whoever has the turn changes it
}

func newLogRelay(out io.Writer) *logRelay {
	return &logRelay{out: out, turn: make(chan struct{}, 1)}
}

// known is how far the log is.
func (l *logRelay) known() requesterapi.Log {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log
}

func (l *logRelay) note(log requesterapi.Log) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = log
}

// add writes what is new of a chunk that begins at start. A log of another name
// than the last one begins where its first chunk does; a caller that names none
// has one log, which begins at 0.
func (l *logRelay) add(ctx context.Context, name string, start int64, chunk []byte) (requesterapi.LogPosition, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return requesterapi.LogPosition{}, ctx.Err()
	}
	log := l.known()
	if name != "" && name != log.Name {
		log = requesterapi.Log{Name: name, NextPos: start}
	}
	if start > log.NextPos {
		f := failed(requesterapi.CodeLogGap, "the chunk begins at %d, but the log ends at %d: send the bytes between them first", start, log.NextPos)
		f.NextPos = &log.NextPos
		return requesterapi.LogPosition{}, f
	}
	known := log.NextPos - start
	if known >= int64(len(chunk)) {
		l.note(log)
		return requesterapi.LogPosition{NextPos: log.NextPos}, nil
	}
	written, err := l.out.Write(chunk[known:])
	log.NextPos += int64(written)
	l.note(log)
	if err != nil {
		return requesterapi.LogPosition{}, fmt.Errorf("cannot write the log: %w", err)
	}
	return requesterapi.LogPosition{NextPos: log.NextPos, Written: written}, nil
}
