package binding

import (
	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// carried says that a requester program carries traffic to an instance, or may: it
// is to be unbound first, as one is whose node was gone for a while. One that does
// not answer may, if it was there when the instance woke. A launcher serves requesters of its own
// namespace alone: what those of others say does not count.
func (w *world) carried(l *launcherPod, i launcherapi.Instance) bool {
	for uid, pod := range w.pods {
		if w.spi[uid] != nil || pod.Namespace != l.pod.Namespace || !running(pod) || i.StateSince.Before(pod.CreationTimestamp.Time) {
			continue
		}
		if _, record := w.boundTo(dualpods.IdentityOf(pod)); record == nil {
			return true
		}
	}
	for uid, said := range w.spi {
		if said != nil && w.pods[uid].Namespace == l.pod.Namespace && said.Proxy.State != requesterapi.StateUnbound && said.Proxy.Address == l.pod.Status.PodIP && int(said.Proxy.Port) == i.Port {
			return true
		}
	}
	return false
}
