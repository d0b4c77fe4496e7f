//go:build cluster && clusterlong

package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
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
			early := false // the gate of a Pod opens before its container runs
			stop := s.followAll(func(p *corev1.Pod, gone bool) {
				if p.Labels["app"] == "ahead" && podmeta.GateOpen(p) && !podmeta.ProgramOf(p).Runs() && !gone && p.DeletionTimestamp == nil {
					early = true
				}
			})
			s.deploy(server{app: "ahead", node: 1, gate: true}, 1)
			s.served("ahead", 1)
			s.scale("ahead", 0)
			s.gone("ahead")
			s.scale("ahead", 1)
			s.served("ahead", 1)
			s.answers("ahead")
			records := s.records(s.poolPods()[cluster.NodeName(1)].Name)
			require.Len(t, records, 1)
			assert.Equal(t, ahead, records[0].Ahead)
			stop()
			assert.Equal(t, ahead, early, "the gate opens before the container runs")
		})
	}
}

// Such Pods are ready before their programs forward.
func TestRequestersWithTheGateAloneLoseNoMoreRequestsThanPlainPods(t *testing.T) {
	churn(t, server{gate: true, alone: true})
}
