package simulation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestWakeThatSpoilsTheAnswersEndsTheEngine plays what the defects of the comparison are found
// by.
func TestWakeThatSpoilsTheAnswersEndsTheEngine(t *testing.T) {
	for _, fault := range []string{"wake garbled", "wake mute"} {
		out := play(t, script{seed: 1, steps: []step{
			{at: time.Millisecond, what: "create", request: "r1", id: "a", gpus: []string{"g0"}, share: "0.9"},
			{at: 10 * time.Second, what: "sleep", id: "a"},
			{at: 14 * time.Second, what: fault, id: "a"},
			{at: 15 * time.Second, what: "wake", id: "a"},
		}, end: 40 * time.Second}, false)
		assert.Empty(t, out.wrong)
		if assert.Len(t, out.left, 1) {
			assert.Equal(t, "failed", out.left[0].State, out.left[0].Reason)
		}
	}
}
