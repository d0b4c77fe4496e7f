package decide

import (
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Recording is what the table recording reads: a requester without a record, and the launcher that
// would serve it.
type Recording struct {
	Launched
	Instance   *launcherapi.Instance // that it would have; nil: it is not there
	Holder     string                // another requester that is bound to the instance, or may be
	Failures   *podmeta.Failures     // of the instance; nil: none
	ModelCache string                // from where a new instance has its model where Form does not say
	Keeper     *dualpods.ModelKeeper // whose copy that is to be; nil: no ClusterModelCache says so
	Copy       Copy                  // of the launcher; only with a Keeper that waits
}

// recording returns the requester with what its record will rest on; nil: it is bound, or no launcher
// would serve it.
func (o *Observation) recording() *Recording {
	l := o.launched()
	if l == nil || o.Record != nil {
		return nil
	}
	return &Recording{
		Launched: *l, Instance: o.Instance, Holder: o.Holder, Failures: o.Failures, ModelCache: o.ModelCache, Keeper: o.Keeper, Copy: o.Copy,
	}
}

// recording: it gets the record of an instance on its GPUs. The rows above the last one are reasons
// why it does not get one yet. The requester is told the first that holds.
var recording = TableOf[Recording]{
	Name:     "recording",
	Sentence: "The requester is not bound",
	Sees:     func(s *seen) *Recording { return s.recording },
	Rows: []RowOf[Recording]{
		{"GPUs not its own", "the requester program names other GPUs than the kubelet gave its container",
			(*Recording).programContradictsKubelet, Tell, warn(GPUsNotItsOwn, "the requester program reports GPU %s, but the kubelet gave its container %s: it gets neither until it reports what it was given",
				func(r *Recording) string { return strings.Join(r.SPI.GPUs, ", ") }, func(r *Recording) string { return strings.Join(r.Kubelet.GPUs, ", ") })},
		{"GPU not the launcher's", "the launcher does not see one of the GPUs",
			(*Recording).gpuNotSeen, Tell, warn(GPUNotSeen, "launcher %s does not see GPU %s", (*Recording).launcherName, (*Recording).gpuUnknownToLauncher)},
		{"seat without a model", "it is a seat of a SeatPool, and was given no model",
			(*Recording).isEmptySeat, Tell, inform[Recording](NoModel, SeatHasNoModel)},
		{"seat's model not seen", "it is a seat, and the controller knows only an earlier edition of the InferenceServerConfig that it was given",
			(*Recording).isBehind, Retry, again(untilSeen, say[Recording]("the InferenceServerConfig that the seat was given was changed a moment ago"))},
		{"instance bound to another", "another record has the instance; or a record that cannot be read has it, and the program of another requester carries traffic to it, or does not answer and may",
			(*Recording).instanceHeld, Tell, inform(InstanceBusy, "its instance %s is still bound to %s", func(r *Recording) string { return r.Requester.Instance }, func(r *Recording) string { return r.Holder })},
		{"models just lost", "a ClusterModelCache of its model says `onMissing: Wait`; the launcher has no instance of it, or one that has ended, and has not said for 10 s at most what models it has",
			(*Recording).modelsJustLost, Retry, again((*Recording).untilMissing, say("%s", (*Recording).missing))},
		{"model missing", "a ClusterModelCache of its model says `onMissing: Wait`; the launcher has no instance of it, or one that has ended, and does not have the model whole, as far as it says",
			(*Recording).lacksModel, Tell, inform(ModelMissing, "%s", (*Recording).missing)},
		{"no record", "in all other cases",
			always[Recording], AddRecord, (*Recording).addRecord},
	},
}

// SeatHasNoModel is the message of a seat without a model.
const SeatHasNoModel = "the seat has no model: the controller gives it one when a Model asks for a seat"

// programContradictsKubelet reports whether the requester program names other GPUs than the
// kubelet.
func (r *Recording) programContradictsKubelet() bool {
	return r.Kubelet != nil && r.SPI != nil && !SameSet(r.SPI.GPUs, r.Kubelet.GPUs)
}

// gpuNotSeen reports whether the launcher does not see all GPUs of the requester.
func (r *Recording) gpuNotSeen() bool { return r.gpuUnknownToLauncher() != "" }

// gpuUnknownToLauncher returns a GPU of the requester that the launcher does not see; empty: it
// sees all.
func (r *Recording) gpuUnknownToLauncher() string {
	for _, gpu := range r.GPUs() {
		if !slices.Contains(r.Launcher.GPUs, gpu) {
			return gpu
		}
	}
	return ""
}

// isBehind reports whether the cache does not have the InferenceServerConfig yet that the seat was given.
func (r *Recording) isBehind() bool { return r.Requester.Behind }

// untilSeen is the pause before the controller looks again whether its cache shows an edit of its own.
func untilSeen(*Recording) time.Duration { return 100 * time.Millisecond }

// instanceHeld reports whether another record has the instance, or may have it.
func (r *Recording) instanceHeld() bool { return r.Holder != "" }

// modelsJustLost reports whether the launcher may say soon what models it has.
func (r *Recording) modelsJustLost() bool { return r.lacksModel() && r.untilMissing() > 0 }

func (r *Recording) addRecord() Step {
	return Step{Why: "launcher " + r.Launcher.Name + " has its GPUs", Record: notBefore(r.newRecord(), r.Failures, r.Now)}
}

// SameSet reports whether two lists have the same elements.
func SameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
