package inference

import (
	"bytes"
	"io"
)

// chunks is a body in memory. It grows without a copy of what it has.
type chunks struct {
	parts  [][]byte
	length int64
}

const (
	firstChunk = 4 << 10 // most requests are short
	nextChunk  = 64 << 10
)

func chunksOf(data []byte) chunks {
	return chunks{[][]byte{data[:len(data):len(data)]}, int64(len(data))}
}

// room gives unused bytes at the end.
func (c *chunks) room() []byte {
	if n := len(c.parts); n > 0 {
		last := c.parts[n-1]
		if len(last) < cap(last) {
			return last[len(last):cap(last)]
		}
	}
	size := nextChunk
	if len(c.parts) == 0 {
		size = firstChunk
	}
	c.parts = append(c.parts, make([]byte, 0, size))
	return c.parts[len(c.parts)-1][:size]
}

// grow takes over the first n bytes of room.
func (c *chunks) grow(n int) {
	last := &c.parts[len(c.parts)-1]
	*last = (*last)[:len(*last)+n]
	c.length += int64(n)
}

// reset forgets the bytes. It keeps a chunk for others.
func (c *chunks) reset() {
	spare := []byte(nil)
	if n := len(c.parts); n > 0 {
		spare = c.parts[n-1]
	}
	if cap(spare) < nextChunk {
		spare = make([]byte, 0, nextChunk)
	}
	c.parts, c.length = append(c.parts[:0], spare[:0]), 0
}

// readAt copies bytes of one chunk; 0 only at the end.
func (c *chunks) readAt(p []byte, offset int64) int {
	for _, part := range c.parts {
		if offset < int64(len(part)) {
			return copy(p, part[offset:])
		}
		offset -= int64(len(part))
	}
	return 0
}

func (c *chunks) join() []byte { return bytes.Join(c.parts, nil) }

// splice puts other bytes in the place of those from start to end.
func (c *chunks) splice(start, end int64, with []byte) {
	var parts [][]byte
	add := func(part []byte) {
		if len(part) > 0 {
			parts = append(parts, part[:len(part):len(part)])
		}
	}
	offset := int64(0)
	for _, part := range c.parts {
		behind := offset + int64(len(part))
		add(part[:max(0, min(start, behind)-offset)])
		if offset <= start && start < behind {
			add(with)
		}
		add(part[min(int64(len(part)), max(0, end-offset)):])
		offset = behind
	}
	c.parts, c.length = parts, c.length+int64(len(with))-(end-start)
}

// replay reads chunks from the beginning.
type replay struct {
	of   *chunks
	read int64
}

func (r *replay) Read(p []byte) (int, error) {
	if r.read == r.of.length {
		return 0, io.EOF
	}
	n := r.of.readAt(p, r.read)
	r.read += int64(n)
	return n, nil
}
