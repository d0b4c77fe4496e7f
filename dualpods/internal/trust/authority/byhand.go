package authority

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ownNamespace has the namespace of a Pod's ServiceAccount, which is its own
// (https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/).
const ownNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Namespace is where the Secret of the authorities is: the namespace that is named,
// or else this Pod's own.
func Namespace(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	text, err := os.ReadFile(ownNamespace)
	if err != nil {
		return "", errors.New("cannot tell where the Secret of the certificate authority is: name its namespace by --ca-namespace")
	}
	return strings.TrimSpace(string(text)), nil
}

// Read reads the authorities from their Secret.
func Read(ctx context.Context, api client.Reader, namespace string) (*Authorities, error) {
	var secret corev1.Secret
	if err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: SecretName}, &secret); err != nil {
		return nil, fmt.Errorf("cannot read the certificate authority in namespace %s: %w", namespace, err)
	}
	there, err := parse(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("cannot use Secret %s/%s: %w", namespace, SecretName, err)
	}
	return there, nil
}

// ByHand gives, in PEM, what a person takes to call launchers and requesters in the
// controller's place: a client's certificate, its key, and the certificates of the
// authorities, which vouch for launchers. It is good until the time that is given.
func (a *Authorities) ByHand(life time.Duration, now time.Time) (text []byte, until time.Time, err error) {
	if life <= 0 || life > clientLife {
		return nil, time.Time{}, fmt.Errorf("a certificate cannot last %s: it can last up to %s", life, clientLife)
	}
	made, err := a.all[0].client("hotseat by hand", life, now)
	if err != nil {
		return nil, time.Time{}, err
	}
	certificate, key, err := inPEM(made)
	return slices.Concat(certificate, key, a.cert), made.Leaf.NotAfter, err
}
