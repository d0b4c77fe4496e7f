// Package link carries calls from a process of the engine's tree to the child
// it started: JSON lines over a socket pair that the child finds as
// descriptor 3.
package link

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrGone is what a call returns when the process at the other end went away.
var ErrGone = errors.New("the process at the other end is gone")

// Call is what a parent asks of its child.
type Call struct {
	ID    uint64   `json:"id"`
	Op    string   `json:"op"`
	Level int      `json:"level,omitempty"`
	Tags  []string `json:"tags,omitempty"`
	// Boot is the child's set-up, present in the first call only.
	Boot json.RawMessage `json:"boot,omitempty"`
}

// Reply is the child's answer to the call of the same ID.
type Reply struct {
	ID    uint64 `json:"id"`
	Error string `json:"error,omitempty"`
	// Gone says that the error is ErrGone: that of a child of the child.
	Gone bool `json:"gone,omitempty"`
}

// Pair makes a connected pair: one end to talk over and one to hand to a child
// as an extra file. The caller closes both.
func Pair() (*Parent, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "link"), os.NewFile(uintptr(fds[1]), "link")
	conn, err := net.FileConn(ours)
	if closeErr := ours.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("cannot use a socket pair: %w", err), theirs.Close())
	}
	return Over(conn), theirs, nil
}

// Over makes the calling end of a connection, which it owns from then on.
func Over(conn net.Conn) *Parent {
	p := &Parent{conn: conn, waiting: map[uint64]chan Reply{}, done: make(chan struct{})}
	go p.read()
	return p
}

// Of makes the answering end of a connection.
func Of(conn net.Conn) *Child { return &Child{in: json.NewDecoder(conn), out: conn} }

// Parent is the calling end.
type Parent struct {
	conn    net.Conn
	done    chan struct{} // closed when the reader has ended
	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan Reply
	gone    bool
}

// Call sends c and waits for its answer, for as long as the child lives. An
// answer that carries an error is returned as one; ErrGone means the child died.
func (p *Parent) Call(c Call) error {
	answer := make(chan Reply, 1)
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		return ErrGone
	}
	p.last++
	c.ID = p.last
	p.waiting[c.ID] = answer
	line, err := json.Marshal(c)
	if err == nil {
		_, err = p.conn.Write(append(line, '\n'))
	}
	if err != nil {
		delete(p.waiting, c.ID)
	}
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	r, ok := <-answer
	switch {
	case !ok, r.Gone:
		return ErrGone
	case r.Error != "":
		return errors.New(r.Error)
	}
	return nil
}

// Close ends the connection, which answers every open call with ErrGone, and
// waits for the reader.
func (p *Parent) Close() error {
	err := p.conn.Close()
	<-p.done
	return err
}

func (p *Parent) read() {
	defer close(p.done)
	in := json.NewDecoder(p.conn)
	for {
		var r Reply
		if err := in.Decode(&r); err != nil {
			p.fail()
			return
		}
		p.mu.Lock()
		answer, ok := p.waiting[r.ID]
		delete(p.waiting, r.ID)
		p.mu.Unlock()
		if ok {
			answer <- r
		}
	}
}

func (p *Parent) fail() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	for id, answer := range p.waiting {
		close(answer)
		delete(p.waiting, id)
	}
}

// Child is the answering end.
type Child struct {
	in  *json.Decoder
	mu  sync.Mutex
	out io.Writer
}

// Inherited opens the child's end, descriptor 3.
func Inherited() *Child {
	unix.CloseOnExec(3)
	f := os.NewFile(3, "link")
	return &Child{in: json.NewDecoder(f), out: f}
}

// Serve answers each call with handle, each in a goroutine of its own, until
// the parent is gone; then it returns without waiting for calls that hang.
func (c *Child) Serve(handle func(Call) error) error {
	for {
		var call Call
		if err := c.in.Decode(&call); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
				return nil
			}
			return fmt.Errorf("cannot read a call: %w", err)
		}
		go func() {
			r := Reply{ID: call.ID}
			if err := handle(call); err != nil {
				r.Error, r.Gone = err.Error(), errors.Is(err, ErrGone)
			}
			c.answer(r)
		}()
	}
}

// answer writes one reply. A parent that is gone needs none, so a failing
// write is not an error.
func (c *Child) answer(r Reply) {
	line, err := json.Marshal(r)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// See above.
	_, _ = c.out.Write(append(line, '\n'))
}
