package binding

import (
	"cmp"
	"fmt"
	"net"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/podmeta"
)

// watchLaunchers watches the launchers of a node, and no others.
func (c *Controller) watchLaunchers(w *world) {
	here := map[string]bool{}
	for _, l := range w.launchers {
		if !l.runs() {
			continue
		}
		here[l.key()] = true
		c.mu.Lock()
		c.owner[l.key()] = w.node.Name
		c.mu.Unlock()
		c.opts.Providers.Watch(l.key(), nodeview.Target{
			Address: net.JoinHostPort(l.pod.Status.PodIP, fmt.Sprint(c.opts.LauncherPort)), Access: c.access(l), Models: l.pod.Labels[podmeta.LabelModelNodeGroup] != "",
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, node := range c.owner {
		if node == w.node.Name && !here[key] {
			c.opts.Providers.Forget(key)
			delete(c.owner, key)
		}
	}
}

// access returns how to call a launcher and the program beside it. A launcher without an
// owner shows the certificate of its LauncherConfig, or gets the token that its Pod mounts.
// Without either, its requesters are released once its Pod is deleted.
func (c *Controller) access(l *launcherPod) nodeview.Access {
	access := c.opts.Access(l.pod)
	if l.orphan && access.Name == "" && access.Token == "" {
		why := cmp.Or(access.Refused, "it has neither a certificate nor a token")
		return nodeview.Access{Refused: "no LauncherConfig owns it, and " + why + ". If that stays so, an administrator must delete the launcher's Pod"}
	}
	return access
}

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
