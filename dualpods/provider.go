package dualpods

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/podmeta"
)

// Provider is a server-providing Pod: a launcher.
type Provider struct {
	UID       types.UID
	Namespace string
	Config    string // name of its LauncherConfig
	Created   time.Time
	Spec      *corev1.PodSpec
	Stage     Stage
	// Ended: what ran in it is gone. Its containers have ended for good, or its own container
	// has ended and was not started again yet.
	Ended bool
	Ready bool // its Pod is Ready
}

// Stage says how soon a launcher can serve, the soonest first.
type Stage int

// The stages of a launcher.
const (
	Working  Stage = iota
	Starting       // its program does not run yet
	Silent         // its program runs, and has not answered for LauncherPatience
	Down           // its container has ended, and is started again
	Leaving        // its Pod is being deleted, or has ended
)

// LauncherPatience is how long a launcher that runs may not answer until it counts as silent:
// one that is killed is back within a second.
const LauncherPatience = 10 * time.Second

// ProviderOf reads the Pod of a launcher. Its program has not answered since lostFor ago; 0: it
// answers, or was not asked yet.
func ProviderOf(pod *corev1.Pod, lostFor time.Duration) Provider {
	finished, down := podmeta.Finished(pod), podmeta.ServerEnded(pod)
	p := Provider{
		UID: pod.UID, Namespace: pod.Namespace, Config: ConfigName(pod), Created: pod.CreationTimestamp.Time,
		Spec: &pod.Spec, Ended: finished || down, Ready: podmeta.Ready(pod),
	}
	switch {
	case finished || !pod.DeletionTimestamp.IsZero():
		p.Stage = Leaving
	case down:
		p.Stage = Down
	case !podmeta.ContainerRuns(pod, podmeta.ServingContainer):
		p.Stage = Starting
	case lostFor >= LauncherPatience:
		p.Stage = Silent
	}
	return p
}

// CanServe reports whether a launcher may serve the requester of a need.
func (p *Provider) CanServe(need *LauncherNeed) bool { return need.names(p) && need.Fits(p.Spec) }
