package dualpods

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/podmeta"
)

// LauncherNeed is what a requester needs a launcher of. Placement, binding and the pool of
// launchers all ask it which launcher serves the requester.
type LauncherNeed struct {
	Namespace string
	Config    string  // name of the LauncherConfig; empty: any that fits
	Image     string  // empty: any
	Mounts    []Mount // volumes that the engine needs to find
	Node      string
	// Placed is the launcher whose sleeper is reserved for the requester; empty: none.
	Placed types.UID
}

// Mount is a volume that an engine needs to find.
type Mount struct {
	Field    string // where it was asked for
	Path     string // where the engine looks
	SubPath  string
	ReadOnly bool
	Source   corev1.VolumeSource
}

// In reports whether a launcher mounts the volume.
func (m *Mount) In(launcher *corev1.PodSpec) bool {
	main := podmeta.Container(launcher, podmeta.ServingContainer)
	return main != nil && slices.ContainsFunc(main.VolumeMounts, func(has corev1.VolumeMount) bool {
		return has.MountPath == m.Path && has.SubPath == m.SubPath && (m.ReadOnly || !has.ReadOnly) &&
			slices.ContainsFunc(launcher.Volumes, func(v corev1.Volume) bool { return v.Name == has.Name && sameSource(v.VolumeSource, m.Source) })
	})
}

// sameSource compares two sources of volumes. The API server has filled in the defaults of a
// Pod's volumes; those of a template or of a server patch may lack them.
func sameSource(a, b corev1.VolumeSource) bool {
	return reflect.DeepEqual(withDefaults(a), withDefaults(b))
}

// defaultMode is the mode of the files of a volume that does not say it.
const defaultMode int32 = 0o644

// withDefaults returns a source with the defaults of the API server.
func withDefaults(source corev1.VolumeSource) *corev1.VolumeSource {
	full := source.DeepCopy()
	if s := full.HostPath; s != nil && s.Type == nil {
		s.Type = new(corev1.HostPathType)
	}
	mode := func(of **int32) {
		if *of == nil {
			is := defaultMode
			*of = &is
		}
	}
	if s := full.ConfigMap; s != nil {
		mode(&s.DefaultMode)
	}
	if s := full.Secret; s != nil {
		mode(&s.DefaultMode)
	}
	if s := full.DownwardAPI; s != nil {
		mode(&s.DefaultMode)
	}
	if s := full.Projected; s != nil {
		mode(&s.DefaultMode)
	}
	return full
}

// Fits reports whether launchers of a Pod template have the image and the mounts.
func (n *LauncherNeed) Fits(launcher *corev1.PodSpec) bool {
	main := podmeta.Container(launcher, podmeta.ServingContainer)
	if main == nil || n.Image != "" && n.Image != main.Image {
		return false
	}
	return !slices.ContainsFunc(n.Mounts, func(m Mount) bool { return !m.In(launcher) })
}

// names reports whether a launcher is of the namespace, and of the LauncherConfig that is
// named or else of the image.
func (n *LauncherNeed) names(l *Candidate) bool {
	if n.Namespace != l.Namespace {
		return false
	}
	if n.Config != "" {
		return n.Config == l.Config
	}
	main := podmeta.Container(l.Spec, podmeta.ServingContainer)
	return n.Image == "" || main != nil && n.Image == main.Image
}

// MayUse reports whether a launcher may serve the requester.
func (n *LauncherNeed) MayUse(l Candidate) bool { return n.names(&l) && n.Fits(l.Spec) }

// Candidate is a launcher of a requester's node.
type Candidate struct {
	UID       types.UID
	Namespace string
	Config    string // name of its LauncherConfig
	Created   time.Time
	Spec      *corev1.PodSpec
	Stage     Stage
	Ready     bool // its Pod is Ready
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

// CandidateOf returns a launcher Pod as a candidate. Its program has not answered since
// lostFor ago; 0: it answers, or was not asked yet.
func CandidateOf(pod *corev1.Pod, lostFor time.Duration) Candidate {
	c := Candidate{
		UID: pod.UID, Namespace: pod.Namespace, Config: pod.Labels[podmeta.LabelLauncherConfig], Created: pod.CreationTimestamp.Time,
		Spec: &pod.Spec, Ready: podmeta.Ready(pod),
	}
	switch {
	case !pod.DeletionTimestamp.IsZero() || podmeta.Finished(pod):
		c.Stage = Leaving
	case podmeta.ServerEnded(pod):
		c.Stage = Down
	case !podmeta.ContainerRuns(pod, podmeta.ServingContainer):
		c.Stage = Starting
	case lostFor >= LauncherPatience:
		c.Stage = Silent
	}
	return c
}

// ChooseLauncher returns the launcher of a node that is to serve a requester; found is false
// if there is none of its LauncherConfig, or of its image. Launchers come in
// this order: those that have the image and the mounts; those that can serve the
// soonest; the one whose sleeper is reserved for the requester; those that are Ready; the
// oldest. If fits is false, no launcher has the image and the mounts, and the one that is
// returned cannot serve the requester.
func ChooseLauncher[L any](need *LauncherNeed, launchers []L, candidate func(L) Candidate) (chosen L, fits, found bool) {
	var best Candidate
	for _, l := range launchers {
		c := candidate(l)
		if !need.names(&c) {
			continue
		}
		if is := need.Fits(c.Spec); !found || need.prefers(&c, is, &best, fits) {
			chosen, best, fits, found = l, c, is, true
		}
	}
	return chosen, fits, found
}

// prefers reports whether launcher a comes before launcher b.
func (n *LauncherNeed) prefers(a *Candidate, aFits bool, b *Candidate, bFits bool) bool {
	reserved := func(c *Candidate) bool { return n.Placed != "" && c.UID == n.Placed }
	return cmp.Or(
		TrueFirst(aFits, bFits), cmp.Compare(a.Stage, b.Stage), TrueFirst(reserved(a), reserved(b)), TrueFirst(a.Ready, b.Ready),
		a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID),
	) < 0
}

// TrueFirst compares as cmp.Compare does; true comes before false.
func TrueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}
