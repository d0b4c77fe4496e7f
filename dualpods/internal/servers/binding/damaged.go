package binding

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// unread is the launcher with a record that cannot be read, and that may be of a
// requester that has no other: it carries traffic to the instance that the record
// is of, or does not say whether it carries any. What was in a container that has
// ended serves nobody.
func (w *world) unread(pod *corev1.Pod) *launcherPod {
	said := w.spi[pod.UID]
	if !running(pod) {
		return nil
	}
	if _, record := w.boundTo(dualpods.IdentityOf(pod)); record != nil {
		return nil
	}
	for _, l := range w.launchers {
		if len(l.damaged) == 0 || l.pod.Namespace != pod.Namespace || l.ended() {
			continue
		}
		carries := said != nil && said.Proxy.State != requesterapi.StateUnbound && said.Proxy.Address == l.pod.Status.PodIP
		if carries && l.serves(said.Proxy.Port) || said == nil && l.serves(0) {
			return l
		}
	}
	return nil
}

// serves says that an instance whose record cannot be read is awake at a port, or
// at any where that is 0, or may be: the launcher does not answer.
func (l *launcherPod) serves(port uint16) bool {
	for id, i := range l.view.Instances {
		if l.lost(id) && i.State == string(launcher.Awake) && (port == 0 || i.Port == int(port)) {
			return true
		}
	}
	return !l.view.Connected
}

// lost says that the record of an instance cannot be read.
func (l *launcherPod) lost(id string) bool {
	return slices.ContainsFunc(l.damaged, func(p podmeta.Problem) bool { return p.Field == podmeta.RecordField(id) })
}

// mayServe says that an instance whose record cannot be read may serve somebody.
func (w *world) mayServe(l *launcherPod, id string) bool {
	if !l.lost(id) {
		return false
	}
	for _, pod := range w.pods {
		if w.unread(pod) == l {
			return true
		}
	}
	return false
}

// heldBy returns a requester that an instance whose record cannot be read may serve; empty: there
// is none. Another record in its place would have the instance serve two.
func (w *world) heldBy(l *launcherPod, id string) string {
	if i := l.instance(id); i != nil && l.lost(id) {
		return w.carrier(l, *i)
	}
	return ""
}
