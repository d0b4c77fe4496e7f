package launcherpool

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// absence is what is known of a need that no launcher of a node serves.
type absence struct {
	need      dualpods.LauncherNeed
	err       error                    // what cannot be read, or why no LauncherConfig can be used
	node      *corev1.Node             // nil: there is none
	config    *v1alpha1.LauncherConfig // whose launchers serve the need
	template  *corev1.PodTemplateSpec  // of these
	launcher  *corev1.Pod              // of the LauncherConfig, on the node; nil: there is none
	certified bool                     // of mode OnDemand: its launchers have a certificate
}

// wait returns what the requester waits for, and nil if a launcher can be created for it. It is a
// pure function.
func (a *absence) wait() *dualpods.LauncherWait {
	switch {
	case a.err != nil:
		return missing("%v", a.err)
	case a.node == nil:
		return missing("there is no node %s", a.need.Node)
	case a.labelsDiffer():
		return missing("node %s gets no launcher of LauncherConfig %s, which selects nodes with the labels %s",
			a.need.Node, a.config.Name, labels.FormatLabels(a.template.Spec.NodeSelector))
	case !selects(a.config, a.node):
		return missing("node %s gets no launcher of LauncherConfig %s, because the node affinity of spec.podTemplate excludes the node", a.need.Node, a.config.Name)
	case a.launcher != nil && a.need.Fits(&a.launcher.Spec):
		return dualpods.WaitForLauncher(a.launcher)
	case a.launcher != nil && a.need.Fits(&a.template.Spec):
		return a.forReplacement()
	case a.launcher != nil:
		return missing("launcher %s of LauncherConfig %s lacks what the requester needs", a.launcher.Name, a.config.Name)
	case a.config.Spec.Population.Mode != v1alpha1.OnDemand:
		return &dualpods.LauncherWait{Why: fmt.Sprintf("DaemonSet %s has no launcher on node %s yet", dualpods.LauncherSet(a.config.Name), a.need.Node)}
	case !a.certified:
		return &dualpods.LauncherWait{Why: fmt.Sprintf("the launchers of LauncherConfig %s have no certificate yet", a.config.Name)}
	default:
		return nil
	}
}

// missing returns that no launcher comes until somebody helps.
func missing(format string, args ...any) *dualpods.LauncherWait {
	return &dualpods.LauncherWait{Missing: true, Why: fmt.Sprintf(format, args...), Stuck: true}
}

// labelsDiffer reports whether the node lacks labels that the launchers select.
func (a *absence) labelsDiffer() bool {
	return !labels.SelectorFromSet(a.template.Spec.NodeSelector).Matches(labels.Set(a.node.Labels))
}

// forReplacement returns what a requester waits for that needs the successor of the launcher.
func (a *absence) forReplacement() *dualpods.LauncherWait {
	pod, config, node, template := a.launcher, a.config, a.node, &a.template.Spec
	stays := pod.DeletionTimestamp.IsZero()
	barred := !admits(node, config, template)
	unbound, how := "", ""
	if isBound(pod) {
		unbound = "no requester is bound to it and "
	}
	switch {
	case stays && barred:
		how = unbound + "the node accepts a new launcher: remove the taints of the node, or tolerate them in spec.podTemplate or the ModelCacheNodeGroup"
	case stays && underPressure(node):
		how = unbound + "the node accepts a new launcher: the node is short of memory, disk space or process IDs"
	default:
		how = "no requester is bound to it, as spec.rollout allows (condition UpToDate)"
	}
	return &dualpods.LauncherWait{
		Why:   fmt.Sprintf("launcher %s was made from an earlier template of LauncherConfig %s, and lacks what the requester needs: it is replaced once %s", pod.Name, config.Name, how),
		Stuck: stays && (barred || budgetOf(config, 1) == 0),
	}
}
