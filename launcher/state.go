package launcher

import "hotseat.dev/hotseat/spec/launcherapi"

// State is the state of an instance.
type State string

// The states of an instance; spec/states.md describes them.
const (
	Starting      State = "starting"       // the process runs and is not healthy yet
	Awake         State = "awake"          // the engine answers inference requests
	FallingAsleep State = "falling_asleep" // the gate is shut; the instance drains, then sleeps
	Sleeping      State = "sleeping"       // alive, its device memory given back
	Waking        State = "waking"         // taking its device memory again
	Stopping      State = "stopping"       // told to end; processes or device memory of it are left
	Stopped       State = "stopped"        // ended as asked, and gone
	Failed        State = "failed"         // ended, though nobody asked for that; gone, or about to be
)

// States lists every state in the order of a life.
var States = []State{Starting, Awake, FallingAsleep, Sleeping, Waking, Stopping, Stopped, Failed}

// Status gives the coarse state that the llm-d launcher's clients know.
func (s State) Status() launcherapi.Status {
	switch s {
	case Stopped, Failed:
		return launcherapi.StatusStopped
	case Starting, Awake, FallingAsleep, Sleeping, Waking, Stopping:
		return launcherapi.StatusRunning
	}
	return launcherapi.StatusStopped
}

// Ended says whether the instance has ended: no event leads out of these states to
// a running one.
func (s State) Ended() bool { return s == Stopped || s == Failed }

// Moving says whether the instance is on its way to another state by itself.
func (s State) Moving() bool {
	return s == Starting || s == FallingAsleep || s == Waking || s == Stopping
}
