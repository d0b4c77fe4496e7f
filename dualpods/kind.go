package dualpods

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Kind is what a Pod is to the controller.
type Kind int

// The kinds of Pods.
const (
	KindOther     Kind = iota // anything else, also a stranger that has the labels of a launcher
	KindRequester             // a requester: it asks for an inference server, or the controller holds it
	KindGated                 // a requester that waits for its placement, and that the controller does not hold
	KindLauncher              // a launcher that the pool made
	KindOrphan                // a launcher with requesters that no LauncherConfig owns; they have to be released
)

// IsLauncher reports whether a Pod is a launcher, also one that no LauncherConfig owns.
func (k Kind) IsLauncher() bool { return k == KindLauncher || k == KindOrphan }

// IsRequester reports whether a Pod is a requester, also one that waits for its placement.
func (k Kind) IsRequester() bool { return k == KindRequester || k == KindGated }

// LooksLike returns what a Pod may be by what it says itself, for an index, a cache or an
// event. [Launchers.KindOf] decides: what looks like a launcher may be a stranger, which is a
// requester if it asks for an inference server.
func LooksLike(pod *corev1.Pod) Kind {
	if ConfigName(pod) != "" {
		return KindLauncher
	}
	return kindOfRequester(pod)
}

// kindOfRequester returns what a Pod is that is no launcher.
func kindOfRequester(pod *corev1.Pod) Kind {
	switch {
	case !podmeta.IsRequester(pod):
		return KindOther
	case podmeta.AwaitsPlacement(pod) && !podmeta.Held(pod): // it runs nowhere before it is placed
		return KindGated
	default:
		return KindRequester
	}
}

// KindOf returns what a Pod is, and the LauncherConfig of a launcher. A Pod is a launcher if
// the LauncherConfig that its labels name made it, or the DaemonSet of that LauncherConfig. It
// is an orphan if it has no such owner, and the finalizer of a bound launcher. What is no
// launcher may be a requester, whatever its labels say.
func (l *Launchers) KindOf(ctx context.Context, pod *corev1.Pod) (Kind, *v1alpha1.LauncherConfig, error) {
	if ConfigName(pod) == "" {
		return kindOfRequester(pod), nil, nil
	}
	switch config, err := l.owner(ctx, pod); {
	case err != nil:
		return KindOther, nil, err
	case config != nil:
		return KindLauncher, config, nil
	case slices.Contains(pod.Finalizers, podmeta.FinalizerProvider):
		return KindOrphan, nil, nil
	}
	return kindOfRequester(pod), nil, nil
}
