package binding

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
)

// unplaced are requesters that are deleted while no node takes them. The controller is killed
// meanwhile, and its API server fails.
var unplaced = []simEvent{
	{at: time.Second, what: "policy"},
	{at: time.Second, what: "cordon", arg: 0},
	{at: time.Second, what: "cordon", arg: 1},
	{at: 2 * time.Second, what: "create", arg: 1},
	{at: 2 * time.Second, what: "create", arg: 2},
	{at: 3 * time.Second, what: "kill controller", arg: 1},
	{at: 3 * time.Second, what: "delete", arg: 0},
	{at: 3100 * time.Millisecond, what: "API flaky", arg: 3},
	{at: 3200 * time.Millisecond, what: "delete", arg: 1},
}

// TestRequesterWithoutANodeIsReleased has requesters be deleted that have our finalizer from
// their creation on, and no node.
func TestRequesterWithoutANodeIsReleased(t *testing.T) {
	for _, seed := range seedsOfComposed {
		out := simulate(t, seed, unplaced, decide.Tables, false)
		assert.Empty(t, out.wrong, "seed %d", seed)
		assert.True(t, out.acted["leaving, released"], "seed %d", seed)
	}
}

// TestRequesterWithoutANodeIsMissedWithoutItsRow takes the row out.
func TestRequesterWithoutANodeIsMissedWithoutItsRow(t *testing.T) {
	for _, seed := range seedsOfComposed {
		assert.NotEmpty(t, simulate(t, seed, unplaced, decide.Without(decide.Tables, "leaving, released"), false).wrong, "seed %d", seed)
	}
}
