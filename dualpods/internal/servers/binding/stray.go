package binding

import (
	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// DecideStray answers what to do with an instance that no record is of: unbound
// means asleep. One that a swap has claimed is on its way to somewhere, unless
// that is a start: a swap for a record that is gone is not waited for. One that
// somebody made by hand is theirs. One that was told to sleep again and again, in
// vain, is deleted.
func DecideStray(i launcherapi.Instance, neverSleeps bool) Step {
	claimed := i.SwapID != "" && i.State != string(launcher.Starting)
	if claimed || !ours(i) {
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

// ours reports whether the controller had an instance made. What somebody made by hand is theirs.
func ours(i launcherapi.Instance) bool { return i.Annotations[podmeta.AnnotationMadeFor] != "" }

// pinned reports whether an instance is not to be evicted.
func pinned(i launcherapi.Instance) bool {
	return i.Annotations[launcherapi.AnnotationPinned] == "true"
}

// carrier is a requester whose program carries traffic to an instance, or may: it
// is to be unbound first, as one is whose node was gone for a while. One that does
// not answer may, if it was there when the instance woke. A launcher serves requesters of its own
// namespace alone: what those of others say does not count. Empty: there is none.
func (w *world) carrier(l *launcherPod, i launcherapi.Instance) (first string) {
	for uid, pod := range w.pods {
		said := w.spi[uid]
		_, record := w.boundTo(dualpods.IdentityOf(pod))
		silent := said == nil && running(pod) && record == nil && !i.StateSince.Before(pod.CreationTimestamp.Time)
		carries := said != nil && said.Proxy.State != requesterapi.StateUnbound && said.Proxy.Address == l.pod.Status.PodIP && int(said.Proxy.Port) == i.Port
		name := pod.Namespace + "/" + pod.Name
		if pod.Namespace == l.pod.Namespace && (silent || carries) && (first == "" || name < first) {
			first = name
		}
	}
	return first
}
