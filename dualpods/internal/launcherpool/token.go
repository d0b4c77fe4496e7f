package launcherpool

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// AnnotationTokenRotation stands on a LauncherConfig. Another value of it is
// another token: launchers made from then on have that one, those before are
// outdated and keep theirs until they are replaced.
const AnnotationTokenRotation = "hotseat.dev/token-rotation"

// secretName is the name of the Secret of the token that new launchers have.
func secretName(config *v1alpha1.LauncherConfig) string {
	name := objectName(config.Name) + "-token"
	if rotation := config.Annotations[AnnotationTokenRotation]; rotation != "" {
		sum := sha256.Sum256([]byte(rotation))
		name += "-" + hex.EncodeToString(sum[:4])
	}
	return name
}

// ensureToken makes the Secret where there is none, or none that can be used, and
// removes those that no launcher has any more.
func (p *Pool) ensureToken(ctx context.Context, config *v1alpha1.LauncherConfig, launchers []*corev1.Pod) error {
	var all corev1.SecretList
	if err := p.opts.API.List(ctx, &all, client.InNamespace(config.Namespace), client.MatchingLabels(Labels(config.Name))); err != nil {
		return fmt.Errorf("cannot list the tokens of its launchers: %w", err)
	}
	want := secretName(config)
	var there *corev1.Secret
	for i := range all.Items {
		s := &all.Items[i]
		switch used := slices.ContainsFunc(launchers, func(l *corev1.Pod) bool { return tokenOf(l) == s.Name }); {
		case s.Name == want:
			there = s
			p.heard("Secret", s)
		case !used && metav1.IsControlledBy(s, config):
			if err := p.opts.API.Delete(ctx, s); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("cannot remove the token %s that no launcher has: %w", s.Name, err)
			}
		}
	}
	switch {
	case there == nil:
	case !madeFor(there, config):
		return &takenError{madeKey("Secret", there)}
	case holdsToken(there, config):
		return nil
	default:
		err := p.opts.API.Delete(ctx, there, client.Preconditions{UID: &there.UID, ResourceVersion: &there.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot replace the token %s, which is no good: %w", there.Name, err)
		}
	}
	return p.makeToken(ctx, config, want)
}

func (p *Pool) makeToken(ctx context.Context, config *v1alpha1.LauncherConfig, name string) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: config.Namespace, Name: name, Labels: Labels(config.Name), OwnerReferences: []metav1.OwnerReference{ownedBy(config)},
		},
		Data: map[string][]byte{tokenKey: []byte(rand.Text())},
	}
	if err := p.create(ctx, "Secret", secret); err != nil {
		return fmt.Errorf("cannot make the token of its launchers: %w", err)
	}
	return nil
}

// madeFor says that a Secret was made for a LauncherConfig of that name: for this
// one, or for an earlier one, which is gone and whose Secret would go next.
func madeFor(secret *corev1.Secret, config *v1alpha1.LauncherConfig) bool {
	owner := metav1.GetControllerOf(secret)
	return owner != nil && owner.Kind == ownedBy(config).Kind && owner.Name == config.Name
}

// holdsToken says that a Secret is a LauncherConfig's own, and has a token.
func holdsToken(secret *corev1.Secret, config *v1alpha1.LauncherConfig) bool {
	return metav1.IsControlledBy(secret, config) && token(secret) != ""
}

func token(secret *corev1.Secret) string { return string(bytes.TrimSpace(secret.Data[tokenKey])) }

// hasToken says that the launchers that are made now can start, and be asked.
func (p *Pool) hasToken(ctx context.Context, config *v1alpha1.LauncherConfig) bool {
	var secret corev1.Secret
	err := p.opts.API.Get(ctx, client.ObjectKey{Namespace: config.Namespace, Name: secretName(config)}, &secret)
	return err == nil && holdsToken(&secret, config)
}

// tokenOf is the name of the Secret that the launcher in a Pod has its token
// from: the one that its container mounts at tokenDir. Empty where it mounts none.
func tokenOf(launcher *corev1.Pod) string {
	main := podmeta.Container(&launcher.Spec, podmeta.ServingContainer)
	if main == nil {
		return ""
	}
	for _, m := range main.VolumeMounts {
		if strings.TrimRight(m.MountPath, "/") != tokenDir {
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

// Token is what the launcher in a Pod asks its clients for: that of the Secret
// that the Pod mounts, which is in its own namespace. So nobody who makes a Pod
// with a launcher's labels has the controller tell a token to it that the Pod
// could not read by itself.
func (p *Pool) Token(launcher *corev1.Pod) string {
	name := tokenOf(launcher)
	if name == "" {
		return ""
	}
	var secret corev1.Secret
	if err := p.opts.API.Get(context.Background(), client.ObjectKey{Namespace: launcher.Namespace, Name: name}, &secret); err != nil {
		return "" // the launcher refuses, which is told; the Secret's coming has it asked again
	}
	return token(&secret)
}
