package binding

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRevertedPublishingIsRepeatedLessAndLessOften(t *testing.T) {
	for do, change := range map[Action]func(*Observation){
		Publish:  func(o *Observation) { o.Requester.Published = false },
		OpenGate: func(o *Observation) { o.Requester.Gate, o.Requester.GateOpen = true, false },
	} {
		made := repeats{}
		o := but(servedOne(), change)
		began, writes := o.Now, 0
		for o.Now.Sub(began) < time.Hour { // somebody reverts each write at once
			o.Repeats = made.of(o.Requester.UID)
			step := Decide(o)
			if step.Do == Retry {
				assert.Positive(t, step.After)
				assert.LessOrEqual(t, step.After, longestPause)
				o.Now = o.Now.Add(step.After)
				continue
			}
			assert.Equal(t, do, step.Do)
			assert.NoError(t, made.add(o, step.Do, nil))
			if writes++; writes > 1000 {
				break
			}
		}
		assert.LessOrEqual(t, writes, freely+9+12, "%s: those that are free, those of the growing pauses, and one in five minutes", do)
		assert.Greater(t, writes, freely, do)

		o.Now = o.Now.Add(settled + time.Second)
		o.Repeats = made.of(o.Requester.UID)
		assert.Equal(t, do, Decide(o).Do, "%s: nothing was reverted for long", do)
		assert.NoError(t, made.add(o, do, nil))
		o.Repeats = made.of(o.Requester.UID)
		assert.Equal(t, do, Decide(o).Do, "%s: counted from the beginning", do)
	}
}

func TestAFailedWriteIsNotCountedAsReverted(t *testing.T) {
	made := repeats{}
	assert.ErrorIs(t, made.add(servedOne(), Publish, assert.AnError), assert.AnError)
	assert.Empty(t, made)
}
