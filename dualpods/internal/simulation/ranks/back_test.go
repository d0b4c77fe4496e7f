package ranks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestServersOnOneLauncherGoBackToTheirOldModel plays changes without faults, to two new models and back to
// the first one. A launcher has room for too few sleepers, and evicts those that fell asleep first. Where
// it has two servers of the group, the swap of each claims the sleeper that the other is to wake.
func TestServersOnOneLauncherGoBackToTheirOldModel(t *testing.T) {
	script := []event{{30 * time.Second, "change model", 1}, {80 * time.Second, "change model", 2}, {130 * time.Second, "change model", 0}}
	undoes := 0
	for seed := range uint64(6) {
		var group *groupTruth
		out := simulateIn(t, seed+1, script, false, func(w *world) {
			setUpPairs(w, 0)
			w.group.stays = modelName(0)
			group = w.group
		})
		require.Empty(t, out.wrong, "seed %d", seed+1)
		undoes += group.undoes
	}
	assert.Positive(t, undoes, "changes that were undone, since servers were in each other's way")
}
