package dualpods

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/podmeta"
)

// Identity tells which requester a record is of. A record may have the UID of a Pod of another
// namespace, if an administrator has made it up: it is not that Pod's.
type Identity struct {
	Namespace string
	UID       types.UID
}

// IdentityOf returns the identity of a requester.
func IdentityOf(pod *corev1.Pod) Identity { return Identity{pod.Namespace, pod.UID} }

// IdentityIn returns the identity of the requester that a record is of. A launcher has records
// of its own namespace alone (podmeta.ReadBindings).
func IdentityIn(record *podmeta.Binding) Identity {
	return Identity{record.Namespace, record.RequesterUID}
}
