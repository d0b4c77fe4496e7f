package dualpods_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestLauncherOfASelectedNodeAloneTakesRequesters(t *testing.T) {
	const template = `{"spec": {"nodeSelector": {"gpu": "h100"}, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
		{"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]}}},
		"containers": [{"name": "inference-server", "image": "vllm"}]}}`
	config := func(change func(*v1alpha1.LauncherConfig)) *v1alpha1.LauncherConfig {
		c := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vllm", UID: "config"}}
		c.Spec.Population.NodeSelector = map[string]string{"pool": "yes"}
		c.Spec.PodTemplate = runtime.RawExtension{Raw: []byte(template)}
		if change != nil {
			change(c)
		}
		return c
	}
	node := func(without string) *corev1.Node {
		labels := map[string]string{"pool": "yes", "gpu": "h100", "zone": "b"}
		delete(labels, without)
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0", Labels: labels}}
	}
	for name, c := range map[string]struct {
		config *v1alpha1.LauncherConfig
		node   *corev1.Node
		takes  bool
	}{
		"it is selected":                            {config(nil), node(""), true},
		"it lost a label of the population":         {config(nil), node("pool"), false},
		"it lost a label of the Pod template":       {config(nil), node("gpu"), false},
		"it lost a label of the affinity":           {config(nil), node("zone"), false},
		"it is not known":                           {config(nil), nil, true},
		"no LauncherConfig owns the launcher":       {nil, node(""), false},
		"its LauncherConfig is being deleted":       {config(func(c *v1alpha1.LauncherConfig) { c.DeletionTimestamp = &metav1.Time{Time: time.Now()} }), node(""), false},
		"its LauncherConfig selects other nodes":    {config(func(c *v1alpha1.LauncherConfig) { c.Spec.Population.NodeSelector["pool"] = "no" }), node(""), false},
		"its LauncherConfig selects all nodes":      {config(func(c *v1alpha1.LauncherConfig) { c.Spec = v1alpha1.LauncherConfigSpec{} }), node("pool"), true},
		"its LauncherConfig has no template at all": {config(func(c *v1alpha1.LauncherConfig) { c.Spec.PodTemplate = runtime.RawExtension{} }), node("gpu"), true},
	} {
		t.Run(name, func(t *testing.T) {
			launchers := dualpods.NewLaunchers(nil)
			for range 2 { // the second answer is known already
				assert.Equal(t, c.takes, launchers.TakesRequesters(c.config, c.node))
			}
			if c.config != nil && c.node != nil && c.config.DeletionTimestamp == nil {
				selection := dualpods.SelectionOf(c.config)
				assert.Equal(t, c.takes, selection.Has(c.node))
			}
		})
	}
}
