package podcache

import (
	"crypto/sha256"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"
	"weak"
)

// pool holds parts of one type, each content once. A part stays as long as a Pod has it:
// the pool has weak pointers to parts.
type pool[T any] struct {
	mu   sync.Mutex
	held map[digest]weak.Pointer[T] // the first element of each list
}

// digest is the SHA-256 of a part's serialised content. Users write Pods, so a shorter
// hash would let one of them give another user's Pod a wrong part.
type digest = [sha256.Size]byte

// content serialises a part: types of Kubernetes do, in a form that has every field that
// the API server stores. Lists of them are serialised as a field of an object.
type content interface{ Marshal() ([]byte, error) }

// list returns the list that is held for the content of own; its capacity is its length.
func (p *pool[T]) list(own []T, content content) []T {
	if len(own) == 0 {
		return own
	}
	serialised, err := content.Marshal()
	if err != nil { // the Pod keeps its own part
		return own
	}
	return unsafe.Slice(p.once(sha256.Sum256(serialised), func() *T {
		return &slices.Clone(own)[0] // a decoder leaves room for more
	}), len(own)) // the same content, so as many elements
}

// once returns the first element of what is held for a content. If nothing is held, it holds
// what the caller makes.
func (p *pool[T]) once(key digest, made func() *T) *T {
	p.mu.Lock()
	defer p.mu.Unlock()
	if first := p.held[key].Value(); first != nil {
		return first
	}
	first := made()
	if p.held == nil {
		p.held = map[digest]weak.Pointer[T]{}
	}
	p.held[key] = weak.Make(first)
	runtime.AddCleanup(first, p.forget, key)
	return first
}

// one is list for a part that is no list.
func (p *pool[T]) one(own *T, content content) *T {
	if own == nil {
		return nil
	}
	return &p.list(unsafe.Slice(own, 1), content)[0]
}

// forget removes a part that no Pod has any more, unless another one of the same content
// has come since.
func (p *pool[T]) forget(key digest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[key].Value() == nil {
		delete(p.held, key)
	}
}

// keepAlive returns own, and has the pool hold shared as long as somebody has own: a list
// that was made from shared, and that has the same parts.
func keepAlive[T any](own, shared []T) []T {
	if len(own) > 0 && &own[0] != &shared[0] {
		runtime.AddCleanup(&own[0], func(*T) {}, &shared[0]) // which holds its argument until own is gone
	}
	return own
}

// Texts returns a map whose keys and values are held once for all objects.
func Texts(all map[string]string) map[string]string {
	if all == nil {
		return nil
	}
	held := make(map[string]string, len(all))
	for key, value := range all {
		held[text(key)] = text(value)
	}
	return held
}

var texts pool[byte]

// text returns a text that is held once for all objects. Package unique would not do: it
// forgets a text at the next garbage collection, unless somebody keeps its Handle.
func text[S ~string](s S) S {
	if s == "" {
		return s
	}
	first := texts.once(sha256.Sum256([]byte(s)), func() *byte { return unsafe.StringData(strings.Clone(string(s))) })
	return S(unsafe.String(first, len(s)))
}
