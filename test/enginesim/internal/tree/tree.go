package tree

import (
	"errors"
	"slices"
	"sync"
	"time"

	"hotseat.dev/hotseat/test/enginesim/internal/link"
)

// Tree is the API server's hold on the processes below it.
type Tree struct {
	died chan struct{}
	once sync.Once

	mu       sync.Mutex
	cores    []*child
	closed   bool
	watchers sync.WaitGroup // those who wait for an EngineCore to end
}

// New makes a tree that has no processes yet.
func New() *Tree { return &Tree{died: make(chan struct{})} }

// Start makes one EngineCore for each data-parallel replica, which make the
// workers, and waits until the model is loaded. After an error the caller
// closes the tree.
func (t *Tree) Start(b Boot) error {
	boots := map[*child]Boot{}
	for replica := range b.DP {
		mine := b
		mine.Replica = replica
		c, err := t.add(mine.coreName())
		if err != nil {
			return err
		}
		boots[c] = mine
	}
	return together(t.all(), func(c *child) error { return c.boot(boots[c]) })
}

// add makes a new process, unless the tree is closed: a Close knows of all.
func (t *Tree) add(name string) (*child, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errors.New("the tree is closed")
	}
	c, err := spawn(name, nil)
	if err != nil {
		return nil, err
	}
	t.cores = append(t.cores, c)
	t.watchers.Go(func() {
		<-c.done
		t.once.Do(func() { close(t.died) })
	})
	return c, nil
}

func (t *Tree) all() []*child {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.cores)
}

// Died is closed when an EngineCore has ended, asked for or not.
func (t *Tree) Died() <-chan struct{} { return t.died }

// Sleep puts the workers to sleep.
func (t *Tree) Sleep(level int) error { return t.call(link.Call{Op: OpSleep, Level: level}) }

// WakeUp wakes the workers, but for the tags that stay asleep.
func (t *Tree) WakeUp(asleep []string) error { return t.call(link.Call{Op: OpWake, Tags: asleep}) }

// ReloadWeights makes the workers load what a level 2 sleep dropped.
func (t *Tree) ReloadWeights() error { return t.call(link.Call{Op: OpReload}) }

// Reach returns when every worker has answered.
func (t *Tree) Reach() error { return t.call(link.Call{Op: OpReach}) }

func (t *Tree) call(call link.Call) error {
	return together(t.all(), func(c *child) error { return c.link.Call(call) })
}

// Close ends the processes and waits for them.
func (t *Tree) Close() error {
	t.mu.Lock()
	t.closed = true
	cores := slices.Clone(t.cores)
	t.mu.Unlock()
	end(cores, 8*time.Second)
	t.watchers.Wait()
	var err error
	for _, c := range cores {
		err = errors.Join(err, c.link.Close())
	}
	return err
}
