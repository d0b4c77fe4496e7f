package dualpods

import (
	"cmp"
	"reflect"
	"slices"

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

// servingField is the container that a server patch describes, and that runs the launcher.
const servingField = "spec.containers[" + podmeta.ServingContainer + "]"

// Lacks returns what launchers of a Pod template lack of the image and the mounts; none: they
// fit.
func (n *LauncherNeed) Lacks(launcher *corev1.PodSpec) (lacks []podmeta.Problem) {
	main := podmeta.Container(launcher, podmeta.ServingContainer)
	if main == nil {
		return []podmeta.Problem{{
			Kind: podmeta.Invalid, Field: "spec.podTemplate.spec.containers",
			Message: "none is named " + podmeta.ServingContainer + ": the LauncherConfig should have one with vLLM in it",
		}}
	}
	if n.Image != "" && n.Image != main.Image {
		lacks = append(lacks, podmeta.Problem{
			Kind: podmeta.LauncherCannotGive, Field: servingField + ".image",
			Message: "is " + n.Image + ", and the launcher's is " + main.Image + ": name another LauncherConfig, or leave the image out",
		})
	}
	for i := range n.Mounts {
		if m := &n.Mounts[i]; !m.In(launcher) {
			lacks = append(lacks, podmeta.Problem{
				Kind: podmeta.LauncherCannotGive, Field: m.Field,
				Message: "the launcher has not mounted that volume there: let the podTemplate of the LauncherConfig mount it",
			})
		}
	}
	return lacks
}

// Fits reports whether launchers of a Pod template lack nothing.
func (n *LauncherNeed) Fits(launcher *corev1.PodSpec) bool { return len(n.Lacks(launcher)) == 0 }

// names reports whether a launcher is of the namespace, and of the LauncherConfig that is
// named or else of the image.
func (n *LauncherNeed) names(l *Provider) bool {
	if n.Namespace != l.Namespace {
		return false
	}
	if n.Config != "" {
		return n.Config == l.Config
	}
	main := podmeta.Container(l.Spec, podmeta.ServingContainer)
	return n.Image == "" || main != nil && n.Image == main.Image
}

// ChooseLauncher returns the launcher of a node that is to serve a requester; found is false
// if there is none of its LauncherConfig, or of its image. Launchers come in
// this order: those that have the image and the mounts; those that can serve the
// soonest; the one whose sleeper is reserved for the requester; those that are Ready; the
// oldest. If fits is false, no launcher has the image and the mounts, and the one that is
// returned cannot serve the requester.
func ChooseLauncher[L any](need *LauncherNeed, launchers []L, provider func(L) Provider) (chosen L, fits, found bool) {
	var best Provider
	for _, l := range launchers {
		p := provider(l)
		if !need.names(&p) {
			continue
		}
		if is := need.Fits(p.Spec); !found || need.prefers(&p, is, &best, fits) {
			chosen, best, fits, found = l, p, is, true
		}
	}
	return chosen, fits, found
}

// prefers reports whether launcher a comes before launcher b.
func (n *LauncherNeed) prefers(a *Provider, aFits bool, b *Provider, bFits bool) bool {
	reserved := func(p *Provider) bool { return n.Placed != "" && p.UID == n.Placed }
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
