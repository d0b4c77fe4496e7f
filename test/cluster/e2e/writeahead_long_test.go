//go:build cluster && clusterlong

package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/cluster"
)

// TestAHotStartIsBoundBeforeItsProgramRuns starts one twice: the controller knows the launcher
// when it is started again.
func TestAHotStartIsBoundBeforeItsProgramRuns(t *testing.T) {
	s := newPool(t, nil)
	require.NoError(t, s.install(t.Context(), "controller.extraArgs={--write-ahead}"))
	t.Cleanup(func() { assert.NoError(t, s.install(context.Background())) })
	s.allReady()
	s.deploy(server{app: "ahead", node: 1}, 1)
	s.served("ahead", 1)
	s.scale("ahead", 0)
	s.gone("ahead")
	s.scale("ahead", 1)
	s.served("ahead", 1)
	s.answers("ahead")
	records := s.records(s.poolPods()[cluster.NodeName(1)].Name)
	require.Len(t, records, 1)
	assert.True(t, records[0].Ahead, "its program ran before it was bound")
}
