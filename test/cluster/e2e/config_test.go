//go:build cluster

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// configure makes an InferenceServerConfig of the app's name.
func (s *site) configure(v server, labels map[string]v1alpha1.LabelValue) {
	s.t.Helper()
	require.NoError(s.t, s.api.Create(s.t.Context(), &v1alpha1.InferenceServerConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: v.app},
		Spec: v1alpha1.InferenceServerConfigSpec{
			ModelServerConfig: v1alpha1.ModelServerConfig{Port: 8000, Args: v.engineArgs(), Labels: labels}, LauncherConfigName: "simulated",
		},
	}))
}

// edit changes an InferenceServerConfig, and gives its generation after that.
func (s *site) edit(name, mergePatch string) int64 {
	s.t.Helper()
	config := &v1alpha1.InferenceServerConfig{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
	require.NoError(s.t, s.api.Patch(s.t.Context(), config, client.RawPatch(types.MergePatchType, []byte(mergePatch))))
	return config.Generation
}

// serving waits until a requester serves that generation of its
// InferenceServerConfig, and gives its instance.
func (s *site) serving(pod string, generation int64) (i launcherapi.Instance) {
	s.t.Helper()
	s.eventually("the requester serves the edition that is asked for", func() bool {
		status := s.status(pod)
		return status.State == "Serving" && status.Generation == generation && status.Message == ""
	})
	i, err := s.launcher("launcher-node-1").Get(s.t.Context(), s.status(pod).Instance)
	require.NoError(s.t, err)
	return i
}

func TestAnEditedConfigurationIsForTheNextRequesterAndItsLabelsForThisOneToo(t *testing.T) {
	const a, b, c = "example.com/a", "example.com/b", "example.com/c"
	s := newSite(t)
	s.onOneGPU()
	v := server{app: "edited", node: 1, config: "edited"}
	s.configure(v, map[string]v1alpha1.LabelValue{a: "1", b: "1"})
	s.deploy(v, 1)
	pod := s.served("edited", 1)[0]
	first := s.serving(pod.Name, 1)
	var unready []string
	stop := s.follow(&pod, func(p *corev1.Pod) {
		if !ready(p) {
			unready = append(unready, p.ResourceVersion)
		}
	})

	// Labels alone: they are what is asked for, and nothing else is touched.
	second := s.edit("edited", `{"spec":{"modelServerConfig":{"labels":{"`+a+`":"2","`+b+`":null,"`+c+`":"1"}}}}`)
	assert.Equal(t, first.PID, s.serving(pod.Name, second).PID)
	labels := s.pod(pod.Name).Labels
	assert.Equal(t, []string{"2", "1", "edited"}, []string{labels[a], labels[c], labels["app"]})
	assert.NotContains(t, labels, b)

	// What runs: the requester that serves goes on with what it has, and says so.
	third := s.edit("edited", `{"spec":{"modelServerConfig":{"args":["org/edited","--gpu-memory-utilization=0.4","--seed=3"],"labels":{"`+a+`":"3"}}}}`)
	s.eventually("the status says that it is another edition", func() bool {
		return strings.Contains(s.status(pod.Name).Message, "has changed since it was bound")
	})
	s.eventually("so does an Event", func() bool {
		return strings.Contains(strings.Join(s.events(pod.Name), "\n"), "has changed since it was bound")
	})
	assert.Equal(t, second, s.status(pod.Name).Generation)
	assert.Equal(t, "2", s.pod(pod.Name).Labels[a], "labels are those of what it serves")
	assert.Equal(t, first.PID, s.instance("launcher-node-1", "edited", "awake").PID)
	stop()
	assert.Empty(t, unready)

	// The next one has the new edition; the model of the old one sleeps and is not woken for it.
	s.delete(pod.Name)
	next := s.replaced("edited", pod)
	now := s.serving(next.Name, third)
	assert.NotEqual(t, first.InstanceID, now.InstanceID)
	assert.Contains(t, now.Args, "--seed=3")
	assert.Equal(t, "3", s.pod(next.Name).Labels[a])
	old, err := s.launcher("launcher-node-1").Get(t.Context(), first.InstanceID)
	require.NoError(t, err)
	assert.Equal(t, "sleeping", old.State)

	// Nobody is bound while the edit is taken back: the sleeper of the first edition is woken.
	s.scale("edited", 0)
	s.gone("edited")
	fourth := s.edit("edited", `{"spec":{"modelServerConfig":{"args":["org/edited","--gpu-memory-utilization=0.4"]}}}`)
	s.scale("edited", 1)
	last := s.served("edited", 1)[0]
	assert.Equal(t, first.PID, s.serving(last.Name, fourth).PID)
}

func TestAStartOfAnEditionThatIsNotWantedAnyMoreIsCancelled(t *testing.T) {
	s := newSite(t)
	s.onOneGPU()
	v := server{app: "slow", node: 1, config: "slow", args: []string{"--sim-load-time=1h"}}
	s.configure(v, nil)
	pod := s.start(v)
	slow := s.instance("launcher-node-1", "slow", "starting")
	second := s.edit("slow", `{"spec":{"modelServerConfig":{"args":["org/slow","--gpu-memory-utilization=0.4"]}}}`)
	i := s.serving("slow", second)
	assert.NotEqual(t, slow.InstanceID, i.InstanceID)
	assert.Equal(t, pod.UID, s.served("slow", 1)[0].UID)
	assert.Len(t, s.instances(s.launcher("launcher-node-1")), 1, "nothing is left of the first start")
	require.Len(t, s.records("launcher-node-1"), 1)
}
