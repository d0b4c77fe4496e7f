package supervisor

import (
	"fmt"
	"strings"

	"hotseat.dev/hotseat/launcher"
)

// setGate sets an instance's gate as the instance's state and the claim on it require.
// The lock is held.
//
//	state                      gate
//	awake                      open; shut while a swap keeps it shut or the launcher closes
//	stopping, stopped, failed  failed: requests are answered with the reason
//	any other                  shut: the answer names the state
func (s *Supervisor) setGate(i *instance) {
	switch {
	case i.gate == nil: // the public port could not be opened, or was given back
	case i.state == launcher.Stopping || i.state.Ended():
		i.gate.Fail(failText(i))
	case i.state == launcher.Starting:
		i.gate.Shut("the engine is starting")
	case i.state != launcher.Awake:
		i.gate.Shut("the instance is " + strings.ReplaceAll(string(i.state), "_", " "))
	case s.closing:
		i.gate.Shut("the launcher is closing")
	case i.gateHeldShut:
		i.gate.Shut("a swap is not over yet")
	default:
		i.gate.Open()
	}
}

func failText(i *instance) string {
	if i.reason == "" {
		return "the instance is " + string(i.state)
	}
	return fmt.Sprintf("the instance is %s: %s", i.state, i.reason)
}
