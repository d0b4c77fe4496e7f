package binding

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
)

// Observer is told what the controller sees and does, for metrics and traces.
// Its methods return at once; those of different nodes are called side by side.
type Observer interface {
	// Saw tells of each decision, once its write was made or could not be.
	Saw(s Sight)
	// Passed ends a pass over a node, of name "" for what is on none yet: Saw has
	// told of these requesters in it, and there are no others on the node.
	Passed(node string, requesters []types.UID)
}

// Sight is one decision and what came of it.
type Sight struct {
	Node        string
	Observation decide.Observation
	Leaving     bool // the requester's server is not wanted any more
	Serving     bool // though it leaves it serves clients that have not heard of that
	Step        decide.Step
	Began       time.Time // the write; a step without one has no length
	Ended       time.Time
	Err         error
}

// Served says that there is nothing to do for the requester: it serves.
func (s Sight) Served() bool { return s.Step.Rule == "" }

// Observers are told one after the other.
type Observers []Observer

// Saw implements [Observer].
func (all Observers) Saw(s Sight) {
	for _, o := range all {
		o.Saw(s)
	}
}

// Passed implements [Observer].
func (all Observers) Passed(node string, requesters []types.UID) {
	for _, o := range all {
		o.Passed(node, requesters)
	}
}

type nobody struct{}

func (nobody) Saw(Sight)                  {}
func (nobody) Passed(string, []types.UID) {}
