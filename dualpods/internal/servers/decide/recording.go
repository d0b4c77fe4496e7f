package decide

import (
	"slices"
	"strings"
)

// recording: it gets the record of an instance on its GPUs.
var recording = Table{
	Name:     "recording",
	Sentence: "The requester is not bound",
	Of:       (*Observation).isUnbound,
	Rows: []Row{
		{"GPUs not its own", "the requester program names other GPUs than the kubelet gave its container",
			(*Observation).programContradictsKubelet, Tell, warn(GPUsNotItsOwn, "the requester program reports GPU %s, but the kubelet gave its container %s: it gets neither until it reports what it was given",
				func(o *Observation) string { return strings.Join(o.SPI.GPUs, ", ") }, func(o *Observation) string { return strings.Join(o.Kubelet.GPUs, ", ") })},
		{"GPU not the launcher's", "the launcher does not see one of the GPUs",
			(*Observation).gpuNotSeen, Tell, warn(GPUNotSeen, "launcher %s does not see GPU %s", launcherName, (*Observation).gpuUnknownToLauncher)},
		{"instance bound to another", "another record has the instance; or a record that cannot be read has it, and the program of another requester carries traffic to it, or does not answer and may",
			(*Observation).instanceHeld, Tell, inform(InstanceBusy, "its instance %s is still bound to %s", func(o *Observation) string { return o.Requester.Instance }, func(o *Observation) string { return o.Holder })},
		{"models just lost", "a ClusterModelCache of its model says `onMissing: Wait`; the launcher has no instance of it, or one that has ended, and has not said for 10 s at most what models it has",
			(*Observation).modelsJustLost, Retry, again((*Observation).untilMissing, say("%s", (*Observation).missing))},
		{"model missing", "a ClusterModelCache of its model says `onMissing: Wait`; the launcher has no instance of it, or one that has ended, and does not have the model whole, as far as it says",
			(*Observation).lacksModel, Tell, inform(ModelMissing, "%s", (*Observation).missing)},
		{"no record", "in all other cases",
			always, AddRecord, addRecord},
	},
}

// isUnbound reports whether nobody is bound to the requester.
func (o *Observation) isUnbound() bool { return o.Record == nil }

// programContradictsKubelet reports whether the requester program names other GPUs than the
// kubelet.
func (o *Observation) programContradictsKubelet() bool {
	return o.Kubelet != nil && o.SPI != nil && !SameSet(o.SPI.GPUs, o.Kubelet.GPUs)
}

// gpuNotSeen reports whether the launcher does not see all GPUs of the requester.
func (o *Observation) gpuNotSeen() bool { return o.gpuUnknownToLauncher() != "" }

// gpuUnknownToLauncher returns a GPU of the requester that the launcher does not see; empty: it
// sees all.
func (o *Observation) gpuUnknownToLauncher() string {
	for _, gpu := range o.GPUs() {
		if !slices.Contains(o.Launcher.GPUs, gpu) {
			return gpu
		}
	}
	return ""
}

// instanceHeld reports whether another record has the instance, or may have it.
func (o *Observation) instanceHeld() bool { return o.Holder != "" }

// modelsJustLost reports whether the launcher may say soon what models it has.
func (o *Observation) modelsJustLost() bool { return o.lacksModel() && o.untilMissing() > 0 }

func addRecord(o *Observation) Step {
	return Step{Why: "launcher " + o.Launcher.Name + " has its GPUs", Record: o.backedOff(o.NewRecord())}
}

// SameSet reports whether two lists have the same elements.
func SameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
