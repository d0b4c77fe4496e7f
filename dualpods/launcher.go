package dualpods

import (
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

// IndexNode is the field that the cache indexes Pods by: the name of their node.
const IndexNode = "spec.nodeName"

// IsLauncher reports whether a Pod is a launcher. A requester that the controller
// holds is not, whatever its labels say.
func IsLauncher(pod *corev1.Pod) bool {
	return !podmeta.Held(pod) && pod.Labels[podmeta.LabelComponent] == podmeta.ComponentLauncher && pod.Labels[podmeta.LabelLauncherConfig] != ""
}

// LauncherNeed is what a requester needs a launcher of.
type LauncherNeed struct {
	Namespace string
	Config    string // name of the LauncherConfig; empty: any that has the image
	Image     string // empty: any
	Node      string
}

// LauncherWait is what a requester waits for while it has no launcher that runs.
type LauncherWait struct {
	Why     string
	Missing bool // no launcher is there, and none is being made
	Stuck   bool // somebody has to do something before it ends
}

// WaitForLauncher returns what a launcher Pod waits for while its program does not run.
func WaitForLauncher(pod *corev1.Pod) *LauncherWait {
	w := &LauncherWait{Why: "launcher " + pod.Name + " is starting"}
	if why, stuck := podmeta.Waits(pod); why != "" {
		w.Why, w.Stuck = "launcher "+pod.Name+" "+why, stuck
	}
	return w
}
