package link

import (
	"encoding/json"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect serves handle at the other end of a parent, in this process.
func connect(t *testing.T, handle func(Call) error) (p *Parent, child *os.File) {
	t.Helper()
	p, child, err := Pair()
	require.NoError(t, err)
	var served sync.WaitGroup
	served.Go(func() {
		c := &Child{in: json.NewDecoder(child), out: child}
		_ = c.Serve(handle)
	})
	t.Cleanup(func() {
		_ = p.Close()
		served.Wait()
		_ = child.Close()
	})
	return p, child
}

func TestCallsAreAnsweredEachByItsOwnReply(t *testing.T) {
	first := make(chan struct{})
	p, _ := connect(t, func(c Call) error {
		if c.Op == "first" {
			<-first
			return nil
		}
		close(first)
		return errors.New("refused: " + c.Op)
	})
	var wg sync.WaitGroup
	wg.Go(func() { require.NoError(t, p.Call(Call{Op: "first"})) })
	require.EqualError(t, p.Call(Call{Op: "second"}), "refused: second")
	wg.Wait()
}

func TestACallWhoseChildGoesIsAnsweredByThat(t *testing.T) {
	over := make(chan struct{})
	defer close(over)
	p, child := connect(t, func(Call) error { <-over; return nil })
	gone := make(chan error, 1)
	go func() { gone <- p.Call(Call{Op: "hang"}) }()
	require.NoError(t, child.Close())
	require.ErrorIs(t, <-gone, ErrGone)
	require.ErrorIs(t, p.Call(Call{Op: "late"}), ErrGone)
}

func TestTheEndOfAGrandchildIsToldAsSuch(t *testing.T) {
	p, _ := connect(t, func(Call) error { return ErrGone })
	require.ErrorIs(t, p.Call(Call{Op: "any"}), ErrGone)
}
