package binding

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestALaunchersContainerHasEndedWhereTheKubeletSaysSo(t *testing.T) {
	running, terminated := &corev1.ContainerStateRunning{}, &corev1.ContainerStateTerminated{ExitCode: 137}
	waiting := &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
	for name, c := range map[string]struct {
		status corev1.ContainerStatus
		ended  bool
	}{
		"it has not run yet":            {corev1.ContainerStatus{State: corev1.ContainerState{Waiting: waiting}}, false},
		"it runs":                       {corev1.ContainerStatus{State: corev1.ContainerState{Running: running}}, false},
		"it runs again":                 {corev1.ContainerStatus{RestartCount: 3, State: corev1.ContainerState{Running: running}}, false},
		"it was killed":                 {corev1.ContainerStatus{State: corev1.ContainerState{Terminated: terminated}}, true},
		"it is to be started again":     {corev1.ContainerStatus{RestartCount: 1, State: corev1.ContainerState{Waiting: waiting}}, true},
		"it waits, and was killed last": {corev1.ContainerStatus{LastTerminationState: corev1.ContainerState{Terminated: terminated}, State: corev1.ContainerState{Waiting: waiting}}, true},
	} {
		pod := &corev1.Pod{}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "other", State: corev1.ContainerState{Terminated: terminated}}, c.status}
		pod.Status.ContainerStatuses[1].Name = podmeta.ServingContainer
		assert.Equal(t, c.ended, podmeta.ServerEnded(pod), name)
	}
}

func TestALauncherThatDoesNotAnswerIsToldOnItsPodOnceUntilItDoes(t *testing.T) {
	told := events.NewFakeRecorder(10)
	c := New(t.Context(), Options{Providers: &nodeViews{}, Again: func(string) {}, Recorder: told}, logr.Discard())
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "l", UID: "l"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: podmeta.ServingContainer}}}}
	runs(pod, "10.1.0.2")
	n := c.work("node-0")
	look := func(view nodeview.View) int {
		c.tellMute(n, &world{now: now, launchers: []*launcherPod{{pod: pod, view: view}}})
		return len(told.Events)
	}
	silent := nodeview.View{Lost: now.Add(-decide.Patience), Why: "an event is longer than 32 MiB"}
	assert.Zero(t, look(nodeview.View{}), "it has not been asked yet")
	assert.Zero(t, look(nodeview.View{Lost: now.Add(-time.Second)}))
	assert.Equal(t, 1, look(silent))
	assert.Equal(t, 1, look(silent))
	assert.Equal(t, "Warning LauncherSilent the launcher does not answer the controller: an event is longer than 32 MiB", <-told.Events)
	assert.Zero(t, look(nodeview.View{Connected: true, Lost: silent.Lost}))
	assert.Equal(t, 1, look(silent))
}
