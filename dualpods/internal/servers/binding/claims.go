package binding

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/allocations"
	"hotseat.dev/hotseat/spec/podmeta"
)

// claim returns which GPUs a requester has, and the launcher of its record.
func (w *world) claim(pod *corev1.Pod) (claim allocations.Claim, on *launcherPod) {
	claim.Given = w.kubelet[pod.UID].GPUs
	if said := w.spi[pod.UID]; said != nil {
		claim.Says, claim.Answers = said.GPUs, true
	}
	on, record := w.boundTo(dualpods.IdentityOf(pod))
	if record != nil {
		claim.Bound = record.GPUs
	}
	return claim, on
}

// rivals returns other living requesters that have a GPU of this one's, or that are bound on it.
// The record of an orphan counts only if its word does.
func (w *world) rivals(uid types.UID) (names []string) {
	pod := w.pods[uid]
	mine, _ := w.claim(pod)
	for other, rival := range w.pods {
		if other == uid || dualpods.RequesterOf(rival).IsOver() {
			continue
		}
		theirs, on := w.claim(rival)
		if mine.IsRival(&theirs, on != nil && on.countsFor(pod.Namespace)) {
			names = append(names, rival.Namespace+"/"+rival.Name)
		}
	}
	slices.Sort(names)
	return names
}

// boundToo is another requester that is bound on one of a record's GPUs, there or not.
func (w *world) boundToo(l *launcherPod, record *podmeta.Binding) string {
	for _, other := range w.launchers {
		for i := range other.bindings {
			b := &other.bindings[i]
			if b.RequesterUID != record.RequesterUID && (other == l || other.countsFor(l.pod.Namespace)) && slices.ContainsFunc(b.GPUs, func(g string) bool { return slices.Contains(record.GPUs, g) }) {
				return b.Namespace + "/" + b.Name
			}
		}
	}
	return ""
}

// swapping is a requester for which a swap is under way on a GPU of somebody
// else's record: what the launcher has been asked for last is to stay.
func (w *world) swapping(n *nodeWork, record *podmeta.Binding) string {
	for _, l := range w.launchers {
		for i := range l.bindings {
			b := &l.bindings[i]
			if b.RequesterUID == record.RequesterUID && b.Namespace == record.Namespace || !slices.ContainsFunc(b.GPUs, func(g string) bool { return slices.Contains(record.GPUs, g) }) {
				continue
			}
			if a := n.calls.attempt(swapKey(l, b), l.view.Revision); a.Asked && !a.Over {
				return b.Namespace + "/" + b.Name
			}
		}
	}
	return ""
}
