//go:build cluster && clusterlong

package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/cluster"
)

// TestAHotStartIsBoundBeforeItsProgramRuns starts one twice: the controller knows the launcher
// when it is started again.
func TestAHotStartIsBoundBeforeItsProgramRuns(t *testing.T) {
	laneOf(t)
	for _, ahead := range []bool{false, true} {
		t.Run(fmt.Sprintf("controller.writeAhead=%t", ahead), func(t *testing.T) {
			s := newPool(t, nil)
			s.installed(fmt.Sprintf("controller.writeAhead=%t", ahead))
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
			assert.Equal(t, ahead, records[0].Ahead)
		})
	}
}
