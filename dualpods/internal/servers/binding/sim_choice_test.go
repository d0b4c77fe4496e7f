package binding

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/spec/podmeta"
)

// simImage is the image of all launchers.
const simImage = "vllm"

// dataFolder is a folder of the node that only launchers of "demand" mount.
const dataFolder = "/data"

// mountData mounts that folder.
func mountData(spec *corev1.PodSpec) {
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dataFolder}}})
	spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: dataFolder})
}

// namesNone has a requester name an image in place of a LauncherConfig, so that launchers of
// both may serve it; or only those of "demand", if it needs the folder.
func (s *sim) namesNone(name string, model int, needsFolder bool) {
	rest := "}]}}"
	if needsFolder {
		rest = fmt.Sprintf(`, "volumeMounts": [{"name": "data", "mountPath": %q}]}], "volumes": [{"name": "data", "hostPath": {"path": %q}}]}}`, dataFolder, dataFolder)
	}
	patch := fmt.Sprintf(`{"metadata": {"labels": {"model": %q}}, "spec": {"containers": [{"name": %q, "image": %q, "command": ["vllm", "serve"], "args": [%q, "--seed=first"]`,
		modelName(model), podmeta.ServingContainer, simImage, "org/"+modelName(model)) + rest
	s.api.changePod(name, func(p *corev1.Pod) { p.Annotations = map[string]string{podmeta.AnnotationServerPatch: patch} })
}

// launcherFor returns the launcher Pod of a node that is to serve a requester; nil: there is
// none. Of several it is one that works.
func (s *sim) launcherFor(node string, wanted form.Form) (pod *corev1.Pod) {
	if wanted.LauncherConfig != "" {
		return s.launcherOn(node, wanted.LauncherConfig)
	}
	for _, config := range []string{"each", "demand"} {
		there := s.launcherOn(node, config)
		if there == nil || len(wanted.Mounts) > 0 && config != "demand" {
			continue
		}
		if pod == nil || s.before(there, pod) {
			pod = there
		}
	}
	return pod
}

// before says that launcher a serves rather than launcher b: one that works, then one that does
// not answer, which may be there again at once, then one that is started again, then the older.
func (s *sim) before(a, b *corev1.Pod) bool {
	leaves := func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil || podmeta.Finished(pod) }
	return cmp.Or(dualpods.TrueFirst(s.works(a), s.works(b)), dualpods.TrueFirst(s.isSilent(a), s.isSilent(b)), dualpods.TrueFirst(!leaves(a), !leaves(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID)) < 0
}

func (s *sim) works(pod *corev1.Pod) bool {
	l := s.launchers[string(pod.UID)]
	return l != nil && l.reachable() && !l.ended && pod.DeletionTimestamp == nil && !podmeta.Finished(pod)
}

func (s *sim) isSilent(pod *corev1.Pod) bool {
	l := s.launchers[string(pod.UID)]
	return l != nil && !l.ended && !l.dead && pod.DeletionTimestamp == nil && !podmeta.Finished(pod)
}

func TestRequesterOfNoLauncherConfigIsServedByOneThatHasItsMounts(t *testing.T) {
	for seed := range uint64(12) {
		out := simulate(t, seed, []simEvent{{at: 3 * time.Second, what: "create anywhere"}}, decide.Tables, false)
		assert.Empty(t, out.wrong, "seed %d", seed)
		assert.Equal(t, 1, out.served, "seed %d: the launcher that is there lacks them, and one that has them is made", seed)
	}
}

func TestRefusalToBecomeUnreadyIsNotRepeatedWithoutPauseWhileItsLauncherGoes(t *testing.T) {
	for _, what := range []string{oddUnready, oddStays} {
		for _, end := range []string{"delete launcher", "hold launcher"} {
			script := []simEvent{{at: 3 * time.Second, what: "create"}, {at: 14 * time.Second, what: what}, {at: 15 * time.Second, what: end}}
			for seed := range uint64(12) {
				assert.Empty(t, simulate(t, seed, script, decide.Tables, false).wrong, "%s, %s, seed %d", what, end, seed)
			}
		}
	}
}
