package launcher

import "hotseat.dev/hotseat/spec/launcherapi"

// State is the state of an instance.
type State string

// The states of an instance; spec/states.md describes them.
const (
	Starting      State = "starting"       // the engine is not healthy yet
	Awake         State = "awake"          // the engine answers inference requests
	FallingAsleep State = "falling_asleep" // the gate is shut; the instance drains, then sleeps
	Sleeping      State = "sleeping"       // the engine lives and has given back its device memory
	Waking        State = "waking"         // the engine is taking its device memory again
	Stopping      State = "stopping"       // a stop was asked for; processes or device memory are left
	Stopped       State = "stopped"        // ended on request, and gone
	Failed        State = "failed"         // ended without a request; gone, or about to be
)

// States lists every state, in the order in which an instance passes through them.
var States = []State{Starting, Awake, FallingAsleep, Sleeping, Waking, Stopping, Stopped, Failed}

// Status returns the coarse state that clients of the llm-d launcher know.
func (s State) Status() launcherapi.Status {
	switch s {
	case Stopped, Failed:
		return launcherapi.StatusStopped
	case Starting, Awake, FallingAsleep, Sleeping, Waking, Stopping:
		return launcherapi.StatusRunning
	}
	return launcherapi.StatusStopped
}

// Ended reports whether the instance has ended. No event leads from an ended state to
// a running one.
func (s State) Ended() bool { return s == Stopped || s == Failed }

// Moving reports whether the instance will reach another state by itself.
func (s State) Moving() bool {
	return s == Starting || s == FallingAsleep || s == Waking || s == Stopping
}
