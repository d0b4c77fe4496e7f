package binding

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
)

func TestARequesterThatSomebodyTakesTheInputFromIsServedAndGoesAsBefore(t *testing.T) {
	for name, how := range map[string]uint64{"its input is gone": 0, "it has the labels of a launcher": 8} {
		t.Run(name, func(t *testing.T) {
			script := []simEvent{{at: 3 * time.Second, what: "create", arg: 8}, {at: 20 * time.Second, what: "disguise", arg: how}}
			out := simulate(t, 1, script, decide.Tables, false)
			assert.Empty(t, out.wrong)
			assert.Equal(t, 1, out.served)
			out = simulate(t, 1, append(script, simEvent{at: time.Minute, what: "delete"}), decide.Tables, false)
			assert.Empty(t, out.wrong)
			assert.Zero(t, out.served)
			out = simulate(t, 1, append(script, simEvent{at: time.Minute, what: "reinstall"}), decide.Tables, false)
			assert.Empty(t, out.wrong)
			assert.Equal(t, 1, out.served)
		})
	}
}
