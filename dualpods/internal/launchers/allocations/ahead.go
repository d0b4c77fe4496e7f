package allocations

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

// CountsAhead reports whether the kubelet's word about a requester counts before its program
// runs. The kubelet names Pods, not their UIDs, and one whose watch lags tells the GPUs of an
// earlier Pod. So its word counts at once for a name that no other Pod has. For other names it
// counts when the kubelet has written the status of this Pod, which it does when it has given it
// its devices.
func CountsAhead(pod *corev1.Pod) bool {
	if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || podmeta.Finished(pod) || podmeta.ProgramOf(pod).Ended() {
		return false
	}
	return pod.Status.StartTime != nil || namedAtRandom(pod)
}

// namedAtRandom reports whether the API server made the end of a Pod's name: five characters of
// those that it draws from (k8s.io/apimachinery/pkg/util/rand).
func namedAtRandom(pod *corev1.Pod) bool {
	drawn, is := strings.CutPrefix(pod.Name, pod.GenerateName)
	return is && pod.GenerateName != "" && len(drawn) == 5 && strings.Trim(drawn, "bcdfghjklmnpqrstvwxz2456789") == "" && strings.ContainsAny(drawn, "bcdfghjklmnpqrstvwxz")
}
