package decide

import (
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Stray returns what to do with an instance that no record is of: unbound means asleep. An
// instance that a swap has claimed is on its way to somewhere, unless that is a start: a swap for
// a record that is gone is not waited for. The controller leaves alone what somebody made by
// hand. It deletes an instance that was told to sleep again and again in vain.
func Stray(i launcherapi.Instance, neverSleeps bool) Step {
	claimed := i.SwapID != "" && i.State != string(launcher.Starting)
	if claimed || !Ours(i) {
		return Step{Do: Nothing}
	}
	switch launcher.State(i.State) {
	case launcher.Awake:
		if neverSleeps {
			return Step{Do: DeleteInstance, Why: "it is awake, does not sleep, and no requester is bound to it"}
		}
		return Step{Do: Sleep, Why: "it is awake, and no requester is bound to it"}
	case launcher.Starting, launcher.Failed, launcher.Stopped:
		return Step{Do: DeleteInstance, Why: "it is " + i.State + ", and no requester is bound to it"}
	default:
		return Step{Do: Nothing}
	}
}

// Ours reports whether the controller had an instance made. What somebody made by hand is theirs.
func Ours(i launcherapi.Instance) bool { return i.Annotations[podmeta.AnnotationMadeFor] != "" }

// Pinned reports whether an instance is not to be evicted.
func Pinned(i launcherapi.Instance) bool {
	return i.Annotations[launcherapi.AnnotationPinned] == "true"
}
