package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestHoldThatIsNotEndedHoldsNothingUp(t *testing.T) {
	o := but(recorded(), holdsFor("uid.1.1"))
	o.Attempt.Asked, o.Form.Args = false, []string{"org/other"}
	assert.Equal(t, EndHold, Decide(o).Do)
	refusedOf(&o, EndHold)
	step := Decide(o)
	assert.Equal(t, []any{"resting, swap waits", CallOff, time.Second}, []any{step.Rule, step.Do, step.After})
	o.Calls.CallOff = true
	step = Decide(o)
	assert.Equal(t, []any{"resting, asleep or gone", RemoveRecord, time.Second}, []any{step.Rule, step.Do, step.After})
	o.Now = o.Now.Add(time.Second)
	assert.Equal(t, EndHold, Decide(o).Do)
}
