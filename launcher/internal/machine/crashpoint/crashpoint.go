// Package crashpoint lets tests kill the launcher at a named point of its work, to
// show that engines, swaps and keys survive. Where the variable HOTSEAT_CRASH_AT is
// not set, a point does nothing.
package crashpoint

import (
	"os"
	"syscall"
)

// Env names the variable that holds the point to die at.
const Env = "HOTSEAT_CRASH_AT"

// Points of an instance's life. Beside them each state has a point State(name),
// just after an instance's change to that state was written down, and each phase of
// a swap has Begun(name) and Done(name).
const (
	StartWritten = "start.written" // the instance is written, no process is made
	StartAsked   = "start.asked"   // a preloader was asked to fork, its answer is not read
	StartForked  = "start.forked"  // the forked process is known, and waits at its gate
	StartSpawned = "start.spawned" // the process runs, its id is not written
	SleepDrained = "sleep.drained" // the engine has not been told to sleep
	SleepDone    = "sleep.done"    // the engine sleeps, which is not written yet
	WakeDone     = "wake.done"     // the engine is awake, which is not written yet
	StopGone     = "stop.gone"     // the tree is gone, which is not written yet
	SwapWritten  = "swap.written"  // the swap is written, nothing is touched
)

// State is the point just after an instance's new state was written down.
func State(name string) string { return "state." + name }

// Begun is the point at the beginning of a swap's phase.
func Begun(phase string) string { return "swap." + phase + ".begun" }

// Done is the point at the end of a swap's phase.
func Done(phase string) string { return "swap." + phase + ".done" }

var armed = os.Getenv(Env)

// Armed reports whether the variable Env names the point.
func Armed(point string) bool { return armed != "" && armed == point }

// At kills this process when the variable Env names the point.
func At(point string) {
	if !Armed(point) {
		return
	}
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL) // cannot fail for oneself
	select {}
}
