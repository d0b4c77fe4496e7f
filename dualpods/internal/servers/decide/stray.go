package decide

import (
	"slices"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Stray is an instance that no record is of.
type Stray struct {
	launcherapi.Instance
	Unreadable  bool   // a record that cannot be read may be of it, and it may serve a requester
	Carried     bool   // the program of a requester carries traffic to it, or may
	NeverSleeps bool   // it was told to sleep often enough
	Surplus     string // the LauncherConfig that has lowered the budget which it exceeds; empty: none
}

// strays: unbound means asleep.
var strays = TableOf[Stray]{
	Name:     "strays",
	Sentence: "No record is of the instance",
	Rows: []RowOf[Stray]{
		{"stray, made by hand", "somebody created it by hand",
			(*Stray).isTheirs, Nothing, say[Stray]("it is somebody's own")},
		{"stray, may serve", "a record that cannot be read may be of it, and a requester may be served by it",
			(*Stray).mayServe, Nothing, say[Stray]("its record cannot be read")},
		{"stray, carried", "it does not sleep; the program of a requester in the launcher's namespace carries traffic to it, or may, as where a node's object was deleted and came back",
			(*Stray).isCarried, Nothing, say[Stray]("a requester program has to be unbound first")},
		{"stray, claimed", "a swap has claimed it, and it is not starting; the swap is for a record that is gone, and is undone",
			(*Stray).isClaimed, Nothing, say[Stray]("a swap has claimed it")},
		{"stray, never sleeps", "it is awake, and was told to sleep five times in vain, or once if it is a worker of a server over several launchers",
			(*Stray).ignoresSleep, DeleteInstance, say[Stray]("it is awake, does not sleep, and no requester is bound to it")},
		{"stray, awake", "it is awake",
			(*Stray).isAwake, Sleep, say[Stray]("it is awake, and no requester is bound to it")},
		{"stray, starting or ended", "it is starting, or has ended",
			(*Stray).isStartingOrEnded, DeleteInstance, func(s *Stray) Step { return Step{Why: "it is " + s.State + ", and no requester is bound to it"} }},
		{"stray, over its budget", "it sleeps, and exceeds a budget of sleepers that the LauncherConfig has lowered since the launcher was started ([decision 0143](decisions/0143-evict-sleepers-over-lowered-budgets.md)); the least recently used one first",
			(*Stray).isSurplus, DeleteInstance, func(s *Stray) Step {
				return Step{Why: "LauncherConfig " + s.Surplus + " has lowered its budgets of sleepers"}
			}},
		{"stray, at rest", "in all other cases",
			always[Stray], Nothing, say[Stray]("it sleeps, or is about to")},
	},
}

// Step returns what to do with the instance, and why.
func (s *Stray) Step() Step { return strays.row(s).step(s) }

func (s *Stray) in(states ...launcher.State) bool {
	return slices.Contains(states, launcher.State(s.State))
}

// isTheirs reports whether somebody created the instance by hand.
func (s *Stray) isTheirs() bool { return !Ours(s.Instance) }

// mayServe reports whether the instance may serve the requester of a record that cannot be read.
func (s *Stray) mayServe() bool { return s.Unreadable }

// isCarried reports whether a requester program may carry traffic to the instance.
func (s *Stray) isCarried() bool { return s.Carried && !s.in(launcher.Sleeping) }

// isClaimed reports whether a swap takes the instance somewhere. A start by a swap for a record
// that is gone is not waited for.
func (s *Stray) isClaimed() bool { return s.SwapID != "" && !s.in(launcher.Starting) }

// isAwake reports whether the instance is awake.
func (s *Stray) isAwake() bool { return s.in(launcher.Awake) }

// ignoresSleep reports whether the instance was told to sleep again and again in vain.
func (s *Stray) ignoresSleep() bool { return s.NeverSleeps && s.isAwake() }

// isStartingOrEnded reports whether the instance cannot be put to sleep.
func (s *Stray) isStartingOrEnded() bool {
	return s.in(launcher.Starting, launcher.Failed, launcher.Stopped)
}

// isSurplus reports whether the instance exceeds a budget of sleepers.
func (s *Stray) isSurplus() bool { return s.Surplus != "" && s.in(launcher.Sleeping) }

// Ours reports whether the controller had an instance made. What somebody made by hand is theirs.
func Ours(i launcherapi.Instance) bool { return i.Annotations[podmeta.AnnotationMadeFor] != "" }

// Pinned reports whether an instance is not to be evicted.
func Pinned(i launcherapi.Instance) bool {
	return i.Annotations[launcherapi.AnnotationPinned] == "true"
}
