package binding

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
)

func TestRevertedPublishingIsRepeatedLessAndLessOften(t *testing.T) {
	for do, change := range map[decide.Action]func(*decide.Observation){
		decide.Publish:  func(o *decide.Observation) { o.Requester.Published = false },
		decide.OpenGate: func(o *decide.Observation) { o.Requester.Gate, o.Requester.GateOpen = true, false },
	} {
		made := repeats{}
		o := but(servedOne(), change)
		began, writes := o.Now, 0
		for o.Now.Sub(began) < time.Hour { // somebody reverts each write at once
			o.Repeats = made.of(o.Requester.UID)
			step := decide.Decide(o)
			if step.Do == decide.Retry {
				assert.Positive(t, step.After)
				assert.LessOrEqual(t, step.After, decide.LongestPause)
				o.Now = o.Now.Add(step.After)
				continue
			}
			assert.Equal(t, do, step.Do)
			assert.NoError(t, made.add(o, step.Do, nil))
			if writes++; writes > 1000 {
				break
			}
		}
		assert.LessOrEqual(t, writes, decide.Freely+9+12, "%s: those that are free, those of the growing pauses, and one in five minutes", do)
		assert.Greater(t, writes, decide.Freely, do)

		o.Now = o.Now.Add(decide.Settled + time.Second)
		o.Repeats = made.of(o.Requester.UID)
		assert.Equal(t, do, decide.Decide(o).Do, "%s: nothing was reverted for long", do)
		assert.NoError(t, made.add(o, do, nil))
		o.Repeats = made.of(o.Requester.UID)
		assert.Equal(t, do, decide.Decide(o).Do, "%s: counted from the beginning", do)
	}
}

func TestAFailedWriteIsNotCountedAsReverted(t *testing.T) {
	made := repeats{}
	assert.ErrorIs(t, made.add(servedOne(), decide.Publish, assert.AnError), assert.AnError)
	assert.Empty(t, made)
}

func TestSeatWithAnotherModelIsShownAtOnce(t *testing.T) {
	n := &nodeWork{told: map[types.UID]decide.Telling{}, repeats: repeats{}, assigned: map[types.UID]string{}}
	now := time.Now()
	o := decide.Observation{Common: decide.Common{Now: now, Requester: decide.Requester{UID: "seat"}}}
	n.seated("seat", "a")
	for range decide.Freely + 1 {
		require.NoError(t, n.repeats.add(o, decide.Publish, nil))
		n.toldNow("seat", decide.AttemptFailed, now)
	}
	n.seated("seat", "a")
	assert.Equal(t, decide.Freely+1, n.repeats.of("seat")[decide.Publish].Times, "it has the same model")
	n.seated("seat", "b")
	assert.Empty(t, n.repeats.of("seat"))
	assert.Empty(t, n.told)
}
