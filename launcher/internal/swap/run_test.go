package swap

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/feed"
	"hotseat.dev/hotseat/launcher/internal/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// paper is a journal that may be full.
type paper struct {
	mu      sync.Mutex
	full    bool
	records []supervisor.Record
}

func (p *paper) Append(r any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full {
		return errors.New("no space left on device")
	}
	p.records = append(p.records, r.(supervisor.Record))
	return nil
}

func (p *paper) written() []supervisor.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.records)
}

func TestASwapThatCannotBeWrittenDownIsNotOneThatRuns(t *testing.T) {
	journal := &paper{full: true}
	sup := supervisor.New(supervisor.Options{Journal: journal, Feed: feed.New(1, 0), Logger: slog.New(slog.DiscardHandler)})
	c := New(Options{Supervisor: sup, Logger: slog.New(slog.DiscardHandler)})
	r := c.newRun("s")
	r.order.held = []string{"g0"}
	require.Error(t, r.save())
	assert.Empty(t, c.Saved(), "else a snapshot of the journal has it, and the next life of the launcher undoes it")

	journal.full = false
	require.NoError(t, r.save())
	assert.Len(t, c.Saved(), 1)
	r.conclude(launcherapi.OutcomeDone, nil)
	assert.Empty(t, c.Saved())
	assert.Len(t, journal.records, 2)
}
