package swap

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/feed"
	"hotseat.dev/hotseat/launcher/internal/supervisor"
)

// paper is a journal that may be full.
type paper struct {
	full    bool
	records []supervisor.Record
}

func (p *paper) Append(r any) error {
	if p.full {
		return errors.New("no space left on device")
	}
	p.records = append(p.records, r.(supervisor.Record))
	return nil
}

func TestASwapThatCannotBeWrittenDownIsNotOneThatRuns(t *testing.T) {
	journal := &paper{full: true}
	sup := supervisor.New(supervisor.Options{Journal: journal, Feed: feed.New(1, 0), Logger: slog.New(slog.DiscardHandler)})
	c := New(Options{Supervisor: sup, Logger: slog.New(slog.DiscardHandler)})
	r := &Run{c: c, order: order{swapID: "s", held: []string{"g0"}}}
	require.Error(t, r.save(false))
	assert.Empty(t, c.Running(), "else a snapshot of the journal has it, and the next life of the launcher undoes it")

	journal.full = false
	require.NoError(t, r.save(false))
	assert.Len(t, c.Running(), 1)
	require.NoError(t, r.save(true))
	assert.Empty(t, c.Running())
	assert.Len(t, journal.records, 2)
}
