package inference

import (
	"bytes"
	"io"
	"sync/atomic"
)

// chunks is a body in memory. It grows without a copy of what it has.
type chunks struct {
	parts  [][]byte
	length int64
	memory *Memory // nil: unbounded
	taken  int64   // of memory
}

// Memory bounds what the bodies of all requests hold together. It is safe for concurrent
// use.
type Memory struct{ left atomic.Int64 }

// NewMemory gives a bound of some bytes.
func NewMemory(bytes int64) *Memory {
	m := &Memory{}
	m.left.Store(bytes)
	return m
}

// take reports whether there is room.
func (m *Memory) take(bytes int64) bool {
	if m == nil || m.left.Add(-bytes) >= 0 {
		return true
	}
	m.left.Add(bytes)
	return false
}

const (
	firstChunk = 4 << 10 // most requests are short
	nextChunk  = 64 << 10
)

// replace takes other bytes in place of all.
func (c *chunks) replace(data []byte) {
	c.parts, c.length = [][]byte{data[:len(data):len(data)]}, int64(len(data))
}

// release gives the memory back.
func (c *chunks) release() {
	c.keep(0)
	c.parts, c.length = nil, 0
}

// keep gives memory back but for some bytes.
func (c *chunks) keep(bytes int64) {
	if c.memory != nil {
		c.memory.left.Add(c.taken - bytes)
	}
	c.taken = bytes
}

// room gives unused bytes at the end; none if there is no memory left.
func (c *chunks) room() []byte {
	if n := len(c.parts); n > 0 {
		last := c.parts[n-1]
		if len(last) < cap(last) {
			return last[len(last):cap(last)]
		}
	}
	size := nextChunk
	if c.parts == nil {
		size = firstChunk
	}
	if !c.memory.take(int64(size)) {
		return nil
	}
	c.taken += int64(size)
	c.parts = append(c.parts, make([]byte, 0, size))
	return c.parts[len(c.parts)-1][:size]
}

// grow takes over the first n bytes of room.
func (c *chunks) grow(n int) {
	last := &c.parts[len(c.parts)-1]
	*last = (*last)[:len(*last)+n]
	c.length += int64(n)
}

// reset forgets the bytes, of which there are some. It keeps room for others, so that a body
// that is sent on does not run out of memory on its way.
func (c *chunks) reset() {
	last := c.parts[len(c.parts)-1]
	if cap(last) != nextChunk && c.memory.take(nextChunk) {
		c.taken += nextChunk
		last = make([]byte, 0, nextChunk)
	}
	c.keep(min(c.taken, nextChunk))
	c.parts, c.length = [][]byte{last[:0]}, 0
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
