package swap

import (
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/core/eventlog"
	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// paper is Records on a disk that may be full.
type paper struct {
	*statedir.Records
	t    *testing.T
	mu   sync.Mutex
	full bool
	said []any // every record ever written
}

func newPaper(t *testing.T) *paper {
	t.Helper()
	state, err := statedir.Open(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, state.Close()) })
	records, err := state.Records("swaps")
	require.NoError(t, err)
	return &paper{Records: records, t: t}
}

func (p *paper) Put(id string, record any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full {
		return syscall.ENOSPC
	}
	p.said = append(p.said, record)
	return p.Records.Put(id, record)
}

func (p *paper) fill(full bool) { p.mu.Lock(); p.full = full; p.mu.Unlock() }

// ever lists every record of a swap ever written.
func (p *paper) ever() (all []Saved) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.said {
		if saved, ok := r.(Saved); ok {
			all = append(all, saved)
		}
	}
	return all
}

// all lists the recorded swaps, oldest first.
func (p *paper) all() (all []Saved) {
	p.t.Helper()
	found, err := p.Read()
	require.NoError(p.t, err)
	for _, f := range found {
		saved, err := ReadSaved(f)
		require.NoError(p.t, err)
		all = append(all, saved)
	}
	InOrder(all)
	return all
}

// alone returns a coordinator whose supervisor has no instances.
func alone(t *testing.T, written *paper) *Coordinator {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	sup := supervisor.New(supervisor.Options{Records: newPaper(t), Feed: eventlog.New(1, 0), Logger: log})
	return New(Options{Supervisor: sup, Records: written, Logger: log})
}

func TestUnwritableSwapDoesNotBegin(t *testing.T) {
	written := newPaper(t)
	c := alone(t, written)
	r := c.newRun("s")
	written.fill(true)
	require.ErrorIs(t, r.save(), syscall.ENOSPC)
	assert.Empty(t, written.all(), "else the next life of the launcher undoes it")

	written.fill(false)
	require.NoError(t, r.save())
	assert.Len(t, written.all(), 1)
	written.fill(true)
	r.conclude(launcherapi.OutcomeDone, nil)
	assert.Empty(t, written.all(), "its end needs no room")
}

func TestOnlyARecordedSwapIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, full := range []bool{false, true} {
			s := newStage(t, newPaper(t))
			s.paper.fill(full)
			f := &fakeClaim{plan: planToWake("a")}
			result, _ := s.play(t, s.run(f))
			assert.Equal(t, full, result.Outcome == launcherapi.OutcomeRefused)
			assert.Equal(t, !full, f.published, "disk full: %v", full)
		}
	})
}

func TestKeyOfASwapWithUnwrittenEndIsKept(t *testing.T) {
	written := newPaper(t)
	c := alone(t, written)
	r := c.newRun("s")
	r.saved.Key, r.saved.Phase = newKey("k", [32]byte{}), "open"
	require.NoError(t, r.save())
	written.fill(true)
	r.conclude(launcherapi.OutcomeDone, nil)
	all := written.all()
	require.Len(t, all, 1, "a retry with its key would do it again")
	assert.True(t, all[0].Done, "it is over")
	assert.Equal(t, r.saved.Key, all[0].Key)
	assert.Equal(t, launcherapi.OutcomeInterrupted, all[0].Result.Outcome)
	assert.Equal(t, launcherapi.CodeStorage, all[0].Failure.Code)
	assert.Equal(t, "open", all[0].Failure.Phase)
}
