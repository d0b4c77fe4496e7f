package supervisor

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestTheKeyOfASwapWhoseEndIsLostIsStillKnown(t *testing.T) {
	swap := SavedSwap{ID: "s", Out: []string{"out"}, Phase: "open", Key: &SavedKey{Key: "k", Salt: []byte("salt"), Hash: []byte("hash")}}
	var raw []json.RawMessage
	for _, r := range []Record{{Swap: &swap}, {Instance: &SavedInstance{Facts: facts{ID: "out"}}}} {
		data, err := json.Marshal(r)
		require.NoError(t, err)
		raw = append(raw, data)
	}
	m, err := Replay(raw)
	require.NoError(t, err)
	assert.Empty(t, m.Swaps, "it is over")
	require.Len(t, m.Ended, 1, "a retry with its key would do it again")
	assert.Equal(t, swap.Key, m.Ended[0].Key)
	assert.True(t, m.Ended[0].Done)
	assert.Equal(t, launcherapi.OutcomeInterrupted, m.Ended[0].Result.Outcome)
	assert.Equal(t, launcherapi.CodeStorage, m.Ended[0].Failure.Code)
}
