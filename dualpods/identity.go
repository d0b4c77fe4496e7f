package dualpods

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Identity tells which requester a record is of. A record may have the UID of a Pod of another
// namespace, if an administrator has made it up: it is not that Pod's.
type Identity struct {
	Namespace string
	UID       types.UID
}

// IdentityOf returns the identity of a requester.
func IdentityOf(pod *corev1.Pod) Identity { return Identity{pod.Namespace, pod.UID} }
