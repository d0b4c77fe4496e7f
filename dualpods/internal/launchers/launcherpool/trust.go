package launcherpool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/trust/authority"
	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// AnnotationTokenRotation is an annotation of a LauncherConfig; the name dates from
// launchers that had tokens. With a new value, new launchers get another Secret with
// another key. Existing launchers are outdated and keep their Secret until they are
// replaced.
const AnnotationTokenRotation = "hotseat.dev/token-rotation"

// secretName returns the name of the Secret with the certificate of new launchers.
func secretName(config *v1alpha1.LauncherConfig) string {
	name := dualpods.LauncherSet(config.Name) + "-tls"
	if rotation := config.Annotations[AnnotationTokenRotation]; rotation != "" {
		sum := sha256.Sum256([]byte(rotation))
		name += "-" + hex.EncodeToString(sum[:4])
	}
	return name
}

func certificateName(config *v1alpha1.LauncherConfig) string {
	return mtls.LauncherName(config.Namespace, config.Name)
}

// ensureCertificates creates the Secrets with the launchers' certificates and returns the time
// until they must be renewed.
func (p *Pool) ensureCertificates(ctx context.Context, config *v1alpha1.LauncherConfig, launchers []*corev1.Pod) (again time.Duration, err error) {
	ctx, stop := context.WithTimeout(ctx, authorityWait)
	defer stop()
	ca, err := p.opts.Authority.Current(ctx)
	if err != nil {
		return 0, err
	}
	return p.ensureSecrets(ctx, config, ca, launchers)
}

// authorityWait bounds the wait for the authority of a new installation.
const authorityWait = 10 * time.Second

// ensureSecrets creates the Secrets of the launchers and deletes those that no launcher
// mounts any more.
func (p *Pool) ensureSecrets(ctx context.Context, config *v1alpha1.LauncherConfig, ca *authority.Authorities, launchers []*corev1.Pod) (again time.Duration, err error) {
	var all corev1.SecretList
	if err := p.opts.API.List(ctx, &all, client.InNamespace(config.Namespace), client.MatchingLabels(Labels(config.Name))); err != nil {
		return 0, fmt.Errorf("cannot list the Secrets of its launchers: %w", err)
	}
	want := secretName(config)
	var there *corev1.Secret
	for i := range all.Items {
		s := &all.Items[i]
		switch used := slices.ContainsFunc(launchers, func(l *corev1.Pod) bool { return mountedSecret(l) == s.Name }); {
		case s.Name == want:
			there = s
			p.confirmCreated("Secret", s)
		case !metav1.IsControlledBy(s, config):
		case !used:
			if err := p.opts.API.Delete(ctx, s); client.IgnoreNotFound(err) != nil {
				return 0, fmt.Errorf("cannot delete Secret %s, which no launcher mounts: %w", s.Name, err)
			}
		case len(s.Data[tokenKey]) == 0: // a running launcher mounts it
			if again, err = p.ensureSecret(ctx, config, ca, s.Name, s); err != nil {
				return 0, err
			}
		}
	}
	until, err := p.ensureSecret(ctx, config, ca, want, there)
	if again == 0 || until < again {
		again = until
	}
	return again, err
}

// ensureSecret creates the Secret of that name when it is missing or its certificate
// is not valid. there is the Secret as the cache shows it.
func (p *Pool) ensureSecret(ctx context.Context, config *v1alpha1.LauncherConfig, ca *authority.Authorities, name string, there *corev1.Secret) (again time.Duration, err error) {
	now := p.opts.Now()
	if there != nil {
		if !madeForName(there, config) {
			return 0, &nameTakenError{objectKey("Secret", there)}
		}
		if until, ok := hasValidCertificate(there, config, ca, now); ok {
			return until.Sub(now), nil
		}
		err := p.opts.API.Delete(ctx, there, client.Preconditions{UID: &there.UID, ResourceVersion: &there.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("cannot replace Secret %s, whose certificate is not valid any more: %w", there.Name, err)
		}
	}
	certificate, key, err := ca.Server(certificateName(config), now)
	if err != nil {
		return 0, err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: config.Namespace, Name: name, Labels: Labels(config.Name), OwnerReferences: []metav1.OwnerReference{ownedBy(config)},
		},
		Data: map[string][]byte{mtls.CertFile: certificate, mtls.KeyFile: key, mtls.CAFile: ca.Certificates()},
	}
	if err := p.create(ctx, "Secret", secret); err != nil {
		return 0, fmt.Errorf("cannot make the certificate of its launchers: %w", err)
	}
	until, _ := ca.Good(certificate, key, certificateName(config), now)
	return until.Sub(now), nil
}

// madeForName reports whether a Secret was made for a LauncherConfig of this name: for this
// one, or for a deleted one whose Secret the garbage collector is about to delete.
func madeForName(secret *corev1.Secret, config *v1alpha1.LauncherConfig) bool {
	owner := metav1.GetControllerOf(secret)
	return owner != nil && owner.Kind == ownedBy(config).Kind && owner.Name == config.Name
}

// hasValidCertificate reports whether a Secret belongs to a LauncherConfig, has a valid certificate
// with its key, and has the authorities in force. It returns when to renew it.
func hasValidCertificate(secret *corev1.Secret, config *v1alpha1.LauncherConfig, ca *authority.Authorities, now time.Time) (until time.Time, ok bool) {
	until, good := ca.Good(secret.Data[mtls.CertFile], secret.Data[mtls.KeyFile], certificateName(config), now)
	return until, good && metav1.IsControlledBy(secret, config) && bytes.Equal(secret.Data[mtls.CAFile], ca.Certificates())
}

// secretExists reports whether the Secret that new launchers need exists.
func (p *Pool) secretExists(ctx context.Context, config *v1alpha1.LauncherConfig) bool {
	var secret corev1.Secret
	err := p.opts.API.Get(ctx, client.ObjectKey{Namespace: config.Namespace, Name: secretName(config)}, &secret)
	return err == nil && metav1.IsControlledBy(&secret, config) && len(secret.Data[mtls.CertFile]) > 0
}

// mountedSecret returns the name of the Secret that the launcher's container mounts at
// trustDir, with its certificate or its token; empty when it mounts none.
func mountedSecret(launcher *corev1.Pod) string {
	main := podmeta.Container(&launcher.Spec, podmeta.ServingContainer)
	if main == nil {
		return ""
	}
	for _, m := range main.VolumeMounts {
		if strings.TrimRight(m.MountPath, "/") != trustDir {
			continue
		}
		for _, v := range launcher.Spec.Volumes {
			if v.Name == m.Name && v.Secret != nil {
				return v.Secret.SecretName
			}
		}
	}
	return ""
}

// Access returns how the controller authenticates to a launcher: by a client
// certificate when the launcher asks for one. A launcher that was made by hand, or by a
// controller before certificates, has a token instead: that of the Secret that its Pod
// mounts. The Secret is in the Pod's own namespace. So a forged launcher Pod gets only
// a token that it could mount anyway. A launcher with neither is not called: nobody could
// tell whether it is one.
func (p *Pool) Access(launcher *corev1.Pod) nodeview.Access {
	name := mountedSecret(launcher)
	if name == "" {
		return nodeview.Access{Refused: "it mounts no Secret at " + trustDir}
	}
	if main := podmeta.Container(&launcher.Spec, podmeta.ServingContainer); slices.Contains(main.Args, clientCAFlag) {
		return nodeview.Access{Name: mtls.LauncherName(launcher.Namespace, dualpods.ConfigName(launcher))}
	}
	var secret corev1.Secret
	if err := p.opts.API.Get(context.Background(), client.ObjectKey{Namespace: launcher.Namespace, Name: name}, &secret); err != nil {
		return nodeview.Access{Refused: "cannot read the Secret " + name + " that it mounts: " + err.Error()} // an event of the Secret triggers another try
	}
	token := string(bytes.TrimSpace(secret.Data[tokenKey]))
	if token == "" {
		return nodeview.Access{Refused: "the Secret " + name + " that it mounts has no " + tokenKey}
	}
	return nodeview.Access{Token: token}
}
