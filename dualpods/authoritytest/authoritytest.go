// Package authoritytest lets tests and benches call launchers and requesters as
// the controller does, by the Secret of its certificate authority.
package authoritytest

import (
	"context"
	"crypto/tls"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods/internal/trust/authority"
)

// SecretName is the name of that Secret, in the namespace of the controller.
const SecretName = authority.SecretName

// Launcher is how the controller calls a launcher whose certificate has that name.
func Launcher(secret *corev1.Secret, name string) (*tls.Config, error) {
	k, err := authority.Fixed(secret)
	if err != nil {
		return nil, err
	}
	return k.Launcher(context.Background(), name)
}

// Requester is how the controller calls a requester.
func Requester(secret *corev1.Secret) (*tls.Config, error) {
	k, err := authority.Fixed(secret)
	if err != nil {
		return nil, err
	}
	return k.Requester(context.Background())
}
