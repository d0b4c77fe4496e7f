//go:build cluster

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestTwoModelsTakeTurnsOnOneGPUAndNoneIsStartedTwice(t *testing.T) {
	s := newSite(t)
	s.apply("examples/dual-pods/requesters.yaml")
	s.onOneGPU()
	launcher := s.launcher("launcher-node-1")
	pids := map[string]int{}
	for turn := range 10 {
		on, off := "model-a", "model-b"
		if turn%2 == 1 {
			on, off = off, on
		}
		s.scale(off, 0)
		s.scale(on, 1)
		pod := s.served(on, 1)[0]
		s.answers(on)
		s.gone(off)

		there := s.instances(launcher)
		require.Equal(t, "awake", there["org/"+on].State)
		if turn > 0 {
			require.Equal(t, "sleeping", there["org/"+off].State)
		}
		if pid, ok := pids[on]; ok {
			require.Equal(t, pid, there["org/"+on].PID, "%s was started anew", on)
		}
		pids[on] = there["org/"+on].PID
		records := s.records("launcher-node-1")
		require.Len(t, records, 1)
		assert.Equal(t, pod.UID, records[0].RequesterUID)
		assert.Contains(t, pod.Finalizers, podmeta.FinalizerRequester)
	}
	s.scale("model-a", 0)
	s.scale("model-b", 0)
	s.gone("model-a")
	s.gone("model-b")
	for model, i := range s.instances(launcher) {
		assert.Equal(t, "sleeping", i.State, model)
	}
	pod := s.pod("launcher-node-1")
	assert.Empty(t, podmeta.BoundTo(pod))
	assert.NotContains(t, pod.Finalizers, podmeta.FinalizerProvider)
}
