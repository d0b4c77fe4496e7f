package decide

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestWhatOthersSayAtLengthFitsIntoAnAnnotation(t *testing.T) {
	long := strings.Repeat("no ", 1<<19)
	for name, o := range map[string]Observation{
		"a requester's refusal": but(fresh(), func(o *Observation) { o.SPI.Wrong = long }),
		"a launcher's refusal": but(recorded(), func(o *Observation) {
			o.Attempt = Attempt{Asked: true, Over: true, Failure: long}
		}),
		"an engine's end": but(servedOne(), func(o *Observation) { o.Instance.State, o.Instance.Reason = "failed", long }),
		"an input's problem": but(fresh(), func(o *Observation) {
			for range 100 {
				o.Problems = append(o.Problems, podmeta.Problem{Field: "spec", Message: long})
			}
		}),
	} {
		step := Decide(o)
		require.NotEqual(t, Nothing, step.Do, name)
		for _, text := range []string{step.Why, step.Record.Failure, step.Failures.Why} {
			assert.LessOrEqual(t, len(text), MaxNote, name)
		}
		o.Requester.Told = step.Why
		assert.NotEqual(t, Tell, Decide(o).Do, "%s is told once", name)
		status, err := StatusText(&o, podmeta.Status{}, podmeta.Status{Message: step.Why})
		require.NoError(t, err)
		assert.Less(t, len(status), 32<<10, name)
	}
}
