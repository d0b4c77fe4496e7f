package binding

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods/internal/servers/nominal"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestALauncherServesRequestersOfItsNamespaceAlone(t *testing.T) {
	of := func(namespace string) *launcherPod {
		return &launcherPod{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Labels: map[string]string{podmeta.LabelLauncherConfig: "vllm"},
		}}}
	}
	w := &world{launchers: []*launcherPod{of("theirs"), of("ours")}}
	for _, form := range []nominal.Form{{LauncherConfig: "vllm"}, {}} {
		found := w.candidate("ours", form)
		require.NotNil(t, found)
		assert.Equal(t, "ours", found.pod.Namespace)
		assert.Nil(t, w.candidate("elsewhere", form))
	}
}

func TestOfSeveralLaunchersTheOldestServesThatWorks(t *testing.T) {
	serving := func(state corev1.ContainerState) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: podmeta.ServingContainer, State: state}}
	}
	of := func(name string, change func(*corev1.Pod)) *launcherPod {
		l := &launcherPod{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "ns", Labels: map[string]string{podmeta.LabelLauncherConfig: "vllm"},
		}}}
		l.pod.Status.PodIP = "10.1.0.2"
		l.pod.Status.ContainerStatuses = serving(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
		change(l.pod)
		return l
	}
	well := func(*corev1.Pod) {}
	starting := func(p *corev1.Pod) {
		p.Status.ContainerStatuses = serving(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}})
	}
	crashed := func(p *corev1.Pod) {
		p.Status.ContainerStatuses = serving(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})
	}
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	deleting := func(p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp = &now }
	for name, c := range map[string]struct {
		oldest, second func(*corev1.Pod)
		serves         string
	}{
		"both are well":                    {well, well, "oldest"},
		"the oldest is being deleted":      {deleting, well, "second"},
		"the oldest has ended":             {ended, well, "second"},
		"the container of the oldest did":  {crashed, well, "second"},
		"the oldest is starting":           {starting, well, "second"},
		"the oldest is all there is":       {starting, crashed, "oldest"},
		"one starts again and one goes":    {deleting, crashed, "second"},
		"one starts and one starts again":  {crashed, starting, "second"},
		"none will ever work":              {ended, deleting, "oldest"},
		"only the second one is going":     {well, deleting, "oldest"},
		"both have containers that ended":  {crashed, crashed, "oldest"},
		"both are being started just now":  {starting, starting, "oldest"},
		"the second one's container ended": {well, crashed, "oldest"},
	} {
		w := &world{launchers: []*launcherPod{of("oldest", c.oldest), of("second", c.second)}}
		assert.Equal(t, c.serves, w.candidate("ns", nominal.Form{LauncherConfig: "vllm"}).pod.Name, name)
	}
}
