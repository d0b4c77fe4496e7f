package binding

import (
	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/requesterapi"
)

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
