package binding

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
)

// lateContainer has a requester that lists the gate be bound seconds before its container runs.
var lateContainer = []simEvent{{at: 2 * time.Second, what: "late containers"}, {at: 3 * time.Second, what: "create", arg: 384}}

func TestGateIsOpenWhileAModelIsAwakeAndTheContainerDoesNotRunYet(t *testing.T) {
	for name, meanwhile := range map[string][]simEvent{
		"nothing happens":                {{at: 8 * time.Second, what: "touch"}},
		"its model ends":                 {{at: 8 * time.Second, what: "kill engine"}},
		"its model ends again and again": {{at: 8 * time.Second, what: "kill engine"}, {at: 13 * time.Second, what: "kill engine"}, {at: 18 * time.Second, what: "kill engine"}},
		"its model is put to sleep":      {{at: 8 * time.Second, what: "sleep by hand"}},
		"its launcher falls silent":      {{at: 8 * time.Second, what: "silence launcher", arg: 1}},
		"the controller is killed":       {{at: 8 * time.Second, what: "kill controller"}},
		"it is deleted":                  {{at: 8 * time.Second, what: "delete"}},
		"the launcher's container ends":  {{at: 8 * time.Second, what: "end launcher"}},
		"it wants something else by now": {{at: 8 * time.Second, what: "edit config", arg: 384}},
	} {
		t.Run(name, func(t *testing.T) {
			script, early := append(lateContainer[:2:2], meanwhile...), 0
			for _, seed := range seedsOfComposed {
				out := simulate(t, seed, script, decide.Tables, false)
				assert.Empty(t, out.wrong, "seed %d", seed)
				if out.decided["awake before it runs, gate shut"] {
					early++
				}
			}
			assert.Positive(t, early)
		})
	}
}
