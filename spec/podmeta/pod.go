package podmeta

import corev1 "k8s.io/api/core/v1"

// ServerEnded says that the serving container of a launcher has ended, and its
// engines with it, and has not been started again yet. The kubelet says so: of one
// that is away nothing new is known.
func ServerEnded(launcher *corev1.Pod) bool {
	for _, s := range launcher.Status.ContainerStatuses {
		if s.Name == ServingContainer {
			return s.State.Terminated != nil || s.State.Waiting != nil && (s.RestartCount > 0 || s.LastTerminationState.Terminated != nil)
		}
	}
	return false
}
