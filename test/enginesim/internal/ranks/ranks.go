// Package ranks connects the ranks of a server over several machines (--nnodes). Each rank has
// workers of its own. The entry passes on to the others what it is asked, over TCP at its
// own --master-port. In real vLLM that is torch.distributed.
package ranks

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"hotseat.dev/hotseat/test/enginesim/internal/link"
	"hotseat.dev/hotseat/test/enginesim/internal/tree"
)

// hello is what a rank says first.
type hello struct {
	Node int `json:"node_rank"`
}

// Entry is rank 0, as far as it has to do with the others.
type Entry struct {
	*tree.Tree
	listener net.Listener // nil: there are no other ranks
	others   int

	mu    sync.Mutex
	ranks []*link.Parent

	lost     chan struct{} // closed when a call has found that another rank is gone
	loseOnce sync.Once
}

// Listen makes the entry of a server of so many ranks, which meets the others at a port.
func Listen(t *tree.Tree, nodes, port int) (*Entry, error) {
	e := &Entry{Tree: t, others: nodes - 1, lost: make(chan struct{})}
	if e.others == 0 {
		return e, nil
	}
	var err error
	if e.listener, err = net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port))); err != nil {
		return nil, fmt.Errorf("cannot listen for other ranks: %w", err)
	}
	return e, nil
}

// Meet waits until every other rank has connected and has loaded the model. It waits for ever
// for one that does not come, as vLLM does.
func (e *Entry) Meet() error {
	met := map[int]bool{}
	for len(met) < e.others {
		conn, err := e.listener.Accept()
		if err != nil {
			return fmt.Errorf("cannot meet the other ranks: %w", err)
		}
		decoder := json.NewDecoder(conn)
		var from hello
		if decoder.Decode(&from) != nil || from.Node < 1 || from.Node > e.others || met[from.Node] {
			_ = conn.Close() // a stranger, who gets no answer
			continue
		}
		met[from.Node] = true
		e.mu.Lock()
		e.ranks = append(e.ranks, link.Over(conn))
		e.mu.Unlock()
	}
	return e.tell(link.Call{Op: tree.OpReach})
}

// Lost is closed when a call has found that another rank is gone.
func (e *Entry) Lost() <-chan struct{} { return e.lost }

// Sleep puts the workers of all ranks to sleep.
func (e *Entry) Sleep(level int) error {
	return e.all(link.Call{Op: tree.OpSleep, Level: level}, func() error { return e.Tree.Sleep(level) })
}

// WakeUp wakes the workers of all ranks, but for the tags that stay asleep.
func (e *Entry) WakeUp(asleep []string) error {
	return e.all(link.Call{Op: tree.OpWake, Tags: asleep}, func() error { return e.Tree.WakeUp(asleep) })
}

// ReloadWeights makes the workers of all ranks load what a level 2 sleep dropped.
func (e *Entry) ReloadWeights() error {
	return e.all(link.Call{Op: tree.OpReload}, e.Tree.ReloadWeights)
}

// Reach returns when every worker of every rank has answered.
func (e *Entry) Reach() error { return e.all(link.Call{Op: tree.OpReach}, e.Tree.Reach) }

// all has the own workers and those of the other ranks do the same at once.
func (e *Entry) all(call link.Call, own func() error) error {
	told := make(chan error, 1)
	go func() { told <- e.tell(call) }()
	err := own()
	return errors.Join(err, <-told)
}

// tell passes a call on to the other ranks at once.
func (e *Entry) tell(call link.Call) error {
	e.mu.Lock()
	others := e.ranks
	e.mu.Unlock()
	errs := make([]error, len(others))
	var wg sync.WaitGroup
	for n, other := range others {
		wg.Go(func() { errs[n] = other.Call(call) })
	}
	wg.Wait()
	err := errors.Join(errs...)
	if errors.Is(err, link.ErrGone) {
		e.loseOnce.Do(func() { close(e.lost) })
	}
	return err
}

// Close leaves the other ranks alone, and ends the own workers.
func (e *Entry) Close() error {
	err := e.Tree.Close()
	if e.listener != nil {
		err = errors.Join(err, e.listener.Close())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, other := range e.ranks {
		err = errors.Join(err, other.Close())
	}
	return err
}

// retry is the time between two attempts to reach the entry.
const retry = 20 * time.Millisecond

// Join connects a rank other than the entry with the entry at an address, and does with its
// workers what the entry says, until the connection ends. loaded is closed once they have loaded
// the model.
func Join(t *tree.Tree, node int, address string, loaded <-chan struct{}) error {
	var conn net.Conn
	for conn == nil {
		var err error
		if conn, err = net.Dial("tcp", address); err != nil {
			time.Sleep(retry)
		}
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(hello{Node: node}); err != nil {
		return fmt.Errorf("cannot join the other ranks: %w", err)
	}
	return link.Of(conn).Serve(func(call link.Call) error {
		<-loaded
		switch call.Op {
		case tree.OpSleep:
			return t.Sleep(call.Level)
		case tree.OpWake:
			return t.WakeUp(call.Tags)
		case tree.OpReload:
			return t.ReloadWeights()
		case tree.OpReach:
			return t.Reach()
		}
		return fmt.Errorf("unknown call %q", call.Op)
	})
}
