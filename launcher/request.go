package launcher

import (
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// CreateRequest asks for a new instance.
type CreateRequest struct {
	ID     string // empty: the launcher generates one
	Spec   launcherapi.InstanceSpec
	DryRun bool // change nothing, and start no preloader
}

// VerbRequest says how to put an instance to sleep or wake it. Level and Drain are for
// a sleep alone.
type VerbRequest struct {
	Level int           // sleep level: 1 or 2; 0 means 1
	Drain time.Duration // negative: the launcher's default
	Limit time.Duration // time for the engine's answer; 0: the launcher's default
}
