package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"hotseat.dev/hotseat/launcher/internal/models/modelsource"
	"hotseat.dev/hotseat/spec/fetchapi"
)

// receive reads from the source until the file is whole. While it reads, what has come
// is hashed, and brought to the disk.
func (p *part) receive(ctx context.Context) (err error) {
	if p.offset == p.file.Size && p.offset > 0 {
		return nil
	}
	stream, err := p.f.Source.Open(ctx, p.n, p.offset)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	if stream.Size >= 0 && stream.Size != p.file.Size {
		return mismatch("%s should have %s, but the source sends %s", p.file.Path, size(p.file.Size), size(stream.Size))
	}
	if stream.Offset != p.offset { // the source gives it from the beginning only
		if err := p.restart(); err != nil {
			return err
		}
	}
	h := p.hash()
	defer h.end()
	for {
		b := <-h.free
		n, err := fill(stream, b)
		if n > 0 {
			if err := p.take(ctx, b[:n]); err != nil {
				return err
			}
		}
		h.put(b[:n])
		switch {
		case errors.Is(err, io.EOF) && p.offset < p.file.Size:
			return &modelsource.TemporaryError{Cause: &fetchapi.Error{
				Reason: fetchapi.ReasonUnavailable,
				Detail: fmt.Sprintf("%s was cut off after %s of %s", p.file.Path, size(p.offset), size(p.file.Size)),
			}}
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// fill reads until the buffer is full, or for a moment: a few large pieces cost less
// than many small ones, and of a slow source is told what it sends.
func fill(r io.Reader, b []byte) (n int, err error) {
	const moment = 50 * time.Millisecond
	for began := time.Now(); n < len(b) && err == nil && time.Since(began) < moment; {
		var more int
		more, err = r.Read(b[n:])
		n += more
	}
	return n, err
}

// take writes what has come.
func (p *part) take(ctx context.Context, b []byte) error {
	p.f.network.Add(int64(len(b)))
	if p.offset+int64(len(b)) > p.file.Size {
		return mismatch("%s should have %s, but the source sends %s or more", p.file.Path, size(p.file.Size), size(p.offset+int64(len(b))))
	}
	if p.f.limiter != nil {
		if err := p.f.limiter.WaitN(ctx, len(b)); err != nil {
			return err
		}
	}
	if _, err := p.out.WriteAt(b, p.offset); err != nil {
		return err
	}
	p.offset += int64(len(b))
	p.f.fetched.Add(int64(len(b)))
	return p.syncBehind()
}

// ahead is how many buffers of a file may wait to be hashed.
const ahead = 4

// hashing hashes what was written of a part, in its order: in a goroutine of its own,
// unless the file is so short that one buffer is enough.
type hashing struct {
	f             *Fetch
	sums          io.Writer
	written, free chan []byte
	ended         chan struct{} // nil: there is no goroutine
}

// hash begins it.
func (p *part) hash() *hashing {
	n := min(ahead, 1+int(p.file.Size/int64(p.f.bufferSize())))
	h := &hashing{f: p.f, sums: p.hashes(), free: make(chan []byte, n)}
	for range n {
		h.free <- p.f.buffer()
	}
	if n == 1 {
		return h
	}
	h.written, h.ended = make(chan []byte, n), make(chan struct{})
	go func() {
		defer close(h.ended)
		for b := range h.written {
			h.take(b)
		}
	}()
	return h
}

// put has a buffer hashed, and used again.
func (h *hashing) put(b []byte) {
	if h.ended == nil {
		h.take(b)
		return
	}
	h.written <- b
}

func (h *hashing) take(b []byte) {
	_, _ = h.sums.Write(b) // a hash takes everything
	h.free <- b[:cap(b)]
}

// end waits until all that was written is hashed.
func (h *hashing) end() {
	if h.ended != nil {
		close(h.written)
		<-h.ended
	}
	close(h.free)
	for b := range h.free {
		h.f.release(b)
	}
}

// buffer gives one that was released, or a new one.
func (f *Fetch) buffer() []byte {
	select {
	case b := <-f.released:
		return b
	default:
		return make([]byte, f.bufferSize())
	}
}

func (f *Fetch) release(b []byte) {
	select {
	case f.released <- b:
	default: // there are enough
	}
}

// syncing is a sync on its way, and the note of what it has brought to the disk.
type syncing struct {
	upTo int64
	done chan error
}

// syncBehind has what was written brought to the disk each half chunk, while the next
// half comes; not faster than the disk takes it.
func (p *part) syncBehind() error {
	begun := p.synced
	if p.syncing != nil {
		begun = p.syncing.upTo
	}
	if p.offset-begun < Chunk/2 {
		return nil
	}
	if err := p.settle(); err != nil {
		return err
	}
	s := &syncing{upTo: p.offset, done: make(chan error, 1)}
	p.syncing = s
	go func() { s.done <- p.syncNoted(s.upTo) }()
	return nil
}

// settle waits for the sync that is on its way.
func (p *part) settle() error {
	if p.syncing == nil {
		return nil
	}
	err := <-p.syncing.done
	if err == nil {
		p.synced = p.syncing.upTo
	}
	p.syncing = nil
	return err
}

// sync brings all that was written to the disk, and notes it.
func (p *part) sync() error {
	if err := p.settle(); err != nil || p.offset == p.synced {
		return err
	}
	if err := p.syncNoted(p.offset); err != nil {
		return err
	}
	p.synced = p.offset
	return nil
}

// syncNoted brings what was written to the disk, and then notes how much that is.
func (p *part) syncNoted(upTo int64) error {
	if err := p.out.Sync(); err != nil {
		return err
	}
	return p.writeNote(strconv.FormatInt(upTo, 10))
}
