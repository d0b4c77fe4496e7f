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

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/trust/authority"
	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// AnnotationTokenRotation stands on a LauncherConfig, and has its name from the
// tokens that launchers once had. Another value of it is another Secret with
// another key: launchers made from then on have that one, those before are
// outdated and keep theirs until they are replaced.
const AnnotationTokenRotation = "hotseat.dev/token-rotation"

// secretName is the name of the Secret of the certificate that new launchers have.
func secretName(config *v1alpha1.LauncherConfig) string {
	name := objectName(config.Name) + "-tls"
	if rotation := config.Annotations[AnnotationTokenRotation]; rotation != "" {
		sum := sha256.Sum256([]byte(rotation))
		name += "-" + hex.EncodeToString(sum[:4])
	}
	return name
}

func certified(config *v1alpha1.LauncherConfig) string {
	return mtls.LauncherName(config.Namespace, config.Name)
}

// ensureTrust makes the Secrets by which launchers and the controller know each
// other, and gives how long they are good for.
func (p *Pool) ensureTrust(ctx context.Context, config *v1alpha1.LauncherConfig, launchers []*corev1.Pod) (again time.Duration, err error) {
	ctx, stop := context.WithTimeout(ctx, authorityWait)
	defer stop()
	ca, err := p.opts.Authority.Current(ctx)
	if err != nil {
		return 0, err
	}
	return p.ensureSecrets(ctx, config, ca, launchers)
}

// authorityWait is for the authority of an installation that is just being made.
const authorityWait = 10 * time.Second

// ensureSecrets makes the Secrets of the launchers, and removes those that no
// launcher has any more.
func (p *Pool) ensureSecrets(ctx context.Context, config *v1alpha1.LauncherConfig, ca *authority.Authorities, launchers []*corev1.Pod) (again time.Duration, err error) {
	var all corev1.SecretList
	if err := p.opts.API.List(ctx, &all, client.InNamespace(config.Namespace), client.MatchingLabels(Labels(config.Name))); err != nil {
		return 0, fmt.Errorf("cannot list the Secrets of its launchers: %w", err)
	}
	want := secretName(config)
	var there *corev1.Secret
	for i := range all.Items {
		s := &all.Items[i]
		switch used := slices.ContainsFunc(launchers, func(l *corev1.Pod) bool { return secretOf(l) == s.Name }); {
		case s.Name == want:
			there = s
			p.heard("Secret", s)
		case !metav1.IsControlledBy(s, config):
		case !used:
			if err := p.opts.API.Delete(ctx, s); client.IgnoreNotFound(err) != nil {
				return 0, fmt.Errorf("cannot remove Secret %s that no launcher has: %w", s.Name, err)
			}
		case len(s.Data[tokenKey]) == 0: // launchers that are still awake have it
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

// ensureSecret makes the Secret of that name, where there is none or none that
// can be used. there is what the cache has of it.
func (p *Pool) ensureSecret(ctx context.Context, config *v1alpha1.LauncherConfig, ca *authority.Authorities, name string, there *corev1.Secret) (again time.Duration, err error) {
	now := time.Now()
	if there != nil {
		if !madeFor(there, config) {
			return 0, &takenError{madeKey("Secret", there)}
		}
		if until, ok := holdsKey(there, config, ca, now); ok {
			return until.Sub(now), nil
		}
		err := p.opts.API.Delete(ctx, there, client.Preconditions{UID: &there.UID, ResourceVersion: &there.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("cannot replace Secret %s, whose certificate counts no more: %w", there.Name, err)
		}
	}
	certificate, key, err := ca.Server(certified(config), now)
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
	until, _ := ca.Good(certificate, key, certified(config), now)
	return until.Sub(now), nil
}

// madeFor says that a Secret was made for a LauncherConfig of that name: for this
// one, or for an earlier one, which is gone and whose Secret would go next.
func madeFor(secret *corev1.Secret, config *v1alpha1.LauncherConfig) bool {
	owner := metav1.GetControllerOf(secret)
	return owner != nil && owner.Kind == ownedBy(config).Kind && owner.Name == config.Name
}

// holdsKey says that a Secret is a LauncherConfig's own, has a certificate with
// its key, and trusts whom it should; and until when.
func holdsKey(secret *corev1.Secret, config *v1alpha1.LauncherConfig, ca *authority.Authorities, now time.Time) (until time.Time, ok bool) {
	until, good := ca.Good(secret.Data[mtls.CertFile], secret.Data[mtls.KeyFile], certified(config), now)
	return until, good && metav1.IsControlledBy(secret, config) && bytes.Equal(secret.Data[mtls.CAFile], ca.Certificates())
}

// hasKey says that the launchers that are made now can start, and be asked.
func (p *Pool) hasKey(ctx context.Context, config *v1alpha1.LauncherConfig) bool {
	var secret corev1.Secret
	err := p.opts.API.Get(ctx, client.ObjectKey{Namespace: config.Namespace, Name: secretName(config)}, &secret)
	return err == nil && metav1.IsControlledBy(&secret, config) && len(secret.Data[mtls.CertFile]) > 0
}

// secretOf is the name of the Secret that the launcher in a Pod has its key, or
// its token, from: the one that its container mounts at trustDir. Empty where it
// mounts none.
func secretOf(launcher *corev1.Pod) string {
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

// Access is how the launcher in a Pod knows the controller: by a certificate,
// where it asks for one. One that was made by hand, or by a controller before
// there were certificates, has the token of the Secret that its Pod mounts, which
// is in its own namespace. So nobody who makes a Pod with a launcher's labels has
// the controller tell a token to it that the Pod could not read by itself.
func (p *Pool) Access(launcher *corev1.Pod) nodeview.Access {
	name := secretOf(launcher)
	if name == "" {
		return nodeview.Access{}
	}
	if main := podmeta.Container(&launcher.Spec, podmeta.ServingContainer); slices.Contains(main.Args, clientCAFlag) {
		return nodeview.Access{Name: mtls.LauncherName(launcher.Namespace, launcher.Labels[podmeta.LabelLauncherConfig])}
	}
	var secret corev1.Secret
	if err := p.opts.API.Get(context.Background(), client.ObjectKey{Namespace: launcher.Namespace, Name: name}, &secret); err != nil {
		return nodeview.Access{} // the launcher refuses, which is told; the Secret's coming has it asked again
	}
	return nodeview.Access{Token: string(bytes.TrimSpace(secret.Data[tokenKey]))}
}
