package binding

import "slices"

// hasShownCertificate reports whether a launcher has answered this process by TLS, with the
// certificate of its LauncherConfig.
func (l *launcherPod) hasShownCertificate() bool { return l.view.Certified && l.view.Instances != nil }

// countsFor reports whether a launcher's records and its word about GPUs count for requesters
// of a namespace. Those of an orphan count only once it has shown its certificate, and in
// other namespaces only if just its DaemonSet was replaced. A token proves nothing: whoever
// forges an orphan also makes the Secret with the token.
func (l *launcherPod) countsFor(namespace string) bool {
	return !l.orphan || l.hasShownCertificate() && (l.pod.Namespace == namespace || l.replaced)
}

// open returns the launchers of the node that get new requesters. Each requester of a pass
// asks for them.
func (w *world) open() []*launcherPod {
	if w.takers == nil {
		w.takers = slices.DeleteFunc(slices.Clone(w.launchers), func(l *launcherPod) bool { return l.closed })
	}
	return w.takers
}
