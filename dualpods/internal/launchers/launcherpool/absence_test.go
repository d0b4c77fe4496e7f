package launcherpool

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestWhatARequesterWaitsForThatHasNoLauncher(t *testing.T) {
	const image, another = "vllm:1", "vllm:2"
	running := func(image string) *corev1.PodSpec {
		return &corev1.PodSpec{Containers: []corev1.Container{{Name: podmeta.ServingContainer, Image: image}}}
	}
	launcherOf := func(image string) func(*absence) {
		return func(a *absence) {
			a.launcher = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: *running(image)}
		}
	}
	both := func(changes ...func(*absence)) func(*absence) {
		return func(a *absence) {
			for _, change := range changes {
				change(a)
			}
		}
	}
	perNode := func(a *absence) { a.config.Spec.Population.Mode = v1alpha1.PerNode }
	for name, c := range map[string]struct {
		change  func(*absence)
		says    string // empty: a launcher can be created
		missing bool
		stuck   bool
	}{
		"nothing is in its way":                     {func(*absence) {}, "", false, false},
		"something cannot be read":                  {func(a *absence) { a.err = errors.New("boom") }, "boom", true, true},
		"its node is gone":                          {func(a *absence) { a.node = nil }, "there is no node node-0", true, true},
		"the launchers select others":               {func(a *absence) { a.template.Spec.NodeSelector = map[string]string{"gpu": "h100"} }, "which selects nodes with the labels gpu=h100", true, true},
		"the affinity excludes it":                  {func(a *absence) { a.config.Spec.Population.NodeSelector = map[string]string{"gpu": "h100"} }, "because the node affinity of spec.podTemplate excludes the node", true, true},
		"a launcher starts":                         {launcherOf(image), "launcher l is starting", false, false},
		"a launcher is to be replaced":              {launcherOf(another), "was made from an earlier template of LauncherConfig vllm", false, false},
		"no launcher has what it needs":             {both(launcherOf(another), func(a *absence) { a.template.Spec = *running(another) }), "launcher l of LauncherConfig vllm lacks what the requester needs", true, true},
		"its DaemonSet has made none":               {perNode, "DaemonSet " + dualpods.LauncherSet("vllm") + " has no launcher on node node-0 yet", false, false},
		"a DaemonSet needs no word of certificates": {both(perNode, func(a *absence) { a.certified = false }), "DaemonSet " + dualpods.LauncherSet("vllm"), false, false},
		"the launchers have no certificate":         {func(a *absence) { a.certified = false }, "the launchers of LauncherConfig vllm have no certificate yet", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := absence{
				need: dualpods.LauncherNeed{Namespace: "ns", Node: "node-0", Image: image}, certified: true,
				node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}}, template: &corev1.PodTemplateSpec{Spec: *running(image)},
				config: &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Name: "vllm"}},
			}
			a.config.Spec.Population.Mode = v1alpha1.OnDemand
			c.change(&a)
			wait := a.wait()
			if c.says == "" {
				assert.Nil(t, wait)
				return
			}
			assert.Contains(t, wait.Why, c.says)
			assert.Equal(t, c.missing, wait.Missing)
			assert.Equal(t, c.stuck, wait.Stuck)
		})
	}
}
