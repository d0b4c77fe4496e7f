package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestARefusalToBecomeUnreadyIsToldOnceNothingElseKeepsClientsAway(t *testing.T) {
	for words, o := range map[string]Observation{
		"the requester program does not unbind: no": but(servedOne(), func(o *Observation) {
			o.Instance.State, o.Requester.Shown = "sleeping", false
			refusedOf(o, BecomeUnready, Unbind)
		}),
		"the requester program does not become unready: no": but(with("sleeping"), func(o *Observation) {
			o.SPI.Proxy.Ready = true
			refusedOf(o, BecomeUnready)
		}),
	} {
		step := Decide(o)
		assert.Equal(t, Tell, step.Do, step.Rule)
		assert.Equal(t, RequesterRefuses, step.Reason)
		assert.Equal(t, words, step.Why)
		assert.Equal(t, time.Second, step.After)
	}
}

func TestRequesterWhoseProgramNeverUnbindsIsReplaced(t *testing.T) {
	for count := range enoughUnbinds + 1 {
		o := but(servedOne(), func(o *Observation) {
			o.SPI.Proxy.Binding, o.SPI.Proxy.Ready = "earlier", false
			o.Requester.Published, o.Requester.Shown = false, false
			o.Troubles = map[Action]Trouble{Unbind: {Count: count, Why: "it refuses"}}
		})
		step := Decide(o)
		assert.Equal(t, "carries for another", step.Rule)
		if count < enoughUnbinds {
			assert.Equal(t, Unbind, step.Do, count)
			continue
		}
		assert.Equal(t, DeleteRequester, step.Do)
		assert.Equal(t, RequesterRefuses, step.Reason)
		assert.Contains(t, step.Why, "does not unbind: it refuses")
		o.SPI.Proxy.Ready = true
		assert.NotEqual(t, DeleteRequester, Decide(o).Do, "clients may use it")
	}
}
