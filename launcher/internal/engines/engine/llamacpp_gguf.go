package engine

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
)

// shape is what decides how large a model's cache is.
type shape struct {
	layers, width, heads, cacheHeads uint64
	keyLength, valueLength           uint64 // of one head; 0: width by heads
	context                          uint64 // tokens that the model can do
}

// cachePerToken is how many bytes one token takes in the cache: a key and a value of 16 bits
// numbers for each layer.
func (s shape) cachePerToken() uint64 {
	perHead := func(length uint64) uint64 {
		if length == 0 && s.heads > 0 {
			return s.width / s.heads
		}
		return length
	}
	heads := s.cacheHeads
	if heads == 0 {
		heads = s.heads
	}
	return 2 * s.layers * heads * (perHead(s.keyLength) + perHead(s.valueLength))
}

// errNoGGUF says that a file is no GGUF file that this code can read.
var errNoGGUF = errors.New("it is no GGUF file")

// Types of values in a GGUF file (docs/gguf.md of ggml).
const (
	ggufBool   = 7
	ggufString = 8
	ggufArray  = 9
)

// ggufSizes are the sizes of the other types, by number.
var ggufSizes = map[uint32]int64{0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, ggufBool: 1, 10: 8, 11: 8, 12: 8}

// readShape reads the header of a GGUF file up to the first list of the tokenizer, which writers
// put after the numbers that are read here.
func readShape(path string) (s shape, err error) {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return shape{}, errNoGGUF // to open a pipe could hold the launcher for ever
	}
	file, err := os.Open(path)
	if err != nil {
		return shape{}, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	r := &ggufReader{from: bufio.NewReader(file)}
	if string(r.bytes(4)) != "GGUF" || r.number(4) < 2 {
		return shape{}, errors.Join(errNoGGUF, r.err)
	}
	r.number(8) // how many tensors
	fields := map[string]*uint64{
		"block_count": &s.layers, "embedding_length": &s.width, "context_length": &s.context,
		"attention.head_count": &s.heads, "attention.head_count_kv": &s.cacheHeads,
		"attention.key_length": &s.keyLength, "attention.value_length": &s.valueLength,
	}
	for n := r.number(8); n > 0 && r.err == nil; n-- {
		key := r.text()
		value := r.value(uint32(r.number(4)))
		if strings.HasPrefix(key, "tokenizer.") {
			break
		}
		if _, name, _ := strings.Cut(key, "."); fields[name] != nil {
			*fields[name] = value
		}
	}
	if r.err != nil {
		return shape{}, r.err
	}
	return s, nil
}

// ggufReader reads parts of a GGUF file until the first error.
type ggufReader struct {
	from *bufio.Reader
	err  error
}

// bytes reads so many bytes, of which there are never many.
func (r *ggufReader) bytes(n int) []byte {
	data := make([]byte, n)
	if r.err == nil {
		_, r.err = io.ReadFull(r.from, data)
	}
	return data
}

// number reads a whole number of that many bytes, at most 8.
func (r *ggufReader) number(size int) uint64 {
	return binary.LittleEndian.Uint64(append(r.bytes(size), make([]byte, 8-size)...))
}

func (r *ggufReader) text() string {
	length := r.number(8)
	if length > maxAnswer {
		r.err = errNoGGUF
		return ""
	}
	return string(r.bytes(int(length)))
}

// value reads a value. That of a list of numbers is its largest, and of a text or a fraction 0.
func (r *ggufReader) value(kind uint32) uint64 {
	switch size, ok := ggufSizes[kind]; {
	case kind == ggufString:
		r.text()
		return 0
	case kind == ggufArray:
		element, largest := uint32(r.number(4)), uint64(0)
		for n := r.number(8); n > 0 && r.err == nil; n-- {
			largest = max(largest, r.value(element))
		}
		return largest
	case !ok:
		r.err = errNoGGUF
		return 0
	case kind == 6 || kind == 12:
		r.number(int(size))
		return 0
	default:
		return r.number(int(size))
	}
}
