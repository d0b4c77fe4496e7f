package binding

import (
	"maps"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/podmeta"
)

// crashed ends the launcher's container, which waits to be started again.
func crashed(o *Observation) {
	o.Launcher.Ended, o.Launcher.Connected, o.Instance = true, false, nil
	o.Launcher.Waits = &dualpods.LauncherWait{Why: "launcher launcher-0 waits in its container inference-server: CrashLoopBackOff", Stuck: true}
}

// crashes are examples of launchers whose container has ended.
var crashes = map[string]example{
	"a deleted one whose launcher's container has ended": {"leaving, launcher gone", RemoveRecord, but(servedOne(), func(o *Observation) { crashed(o); deleting(o); unserved(o) })},
	"one deleted by force whose launcher's container has ended": {"leaving, launcher gone", RemoveRecord, but(with("awake"), func(o *Observation) {
		crashed(o)
		o.Requester, o.SPI = Requester{UID: "uid"}, nil
	})},
	"one that is not served yet, its launcher's container ended": {"leaving, launcher gone", RemoveRecord, but(recorded(), crashed)},
	"one that carries traffic, not ready yet, its launcher's container ended": {"leaving, carries", Unbind, but(servedOne(), func(o *Observation) {
		crashed(o)
		o.SPI.Proxy.Ready, o.Requester.Published, o.Requester.Shown = false, false, false
	})},
	"a served one whose launcher's container has ended":                   {"not awake, ready", BecomeUnready, but(servedOne(), crashed)},
	"the same, once it is unready, though its launcher's container ended": {"died while it served", DeleteRequester, but(servedOne(), func(o *Observation) { crashed(o); o.SPI.Proxy.Ready = false })},
	"a served one whose program hangs, its launcher's container ended":    {"died while it served", DeleteRequester, but(servedOne(), func(o *Observation) { crashed(o); o.SPI = nil })},
	"one that is not bound, its launcher's container ended":               {"launcher starting", Tell, but(fresh(), crashed)},
	"a served one whose launcher Pod is being deleted, and whose container has ended": {"provider leaving", DeleteRequester, but(servedOne(), func(o *Observation) {
		crashed(o)
		o.Launcher.Deleting, o.SPI.Proxy.Ready = true, false
	})},
}

func init() { maps.Copy(examples, crashes) }

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
	c := New(t.Context(), Options{Views: &nodeViews{}, Again: func(string) {}, Recorder: told}, logr.Discard())
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "l", UID: "l"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: podmeta.ServingContainer}}}}
	runs(pod, "10.1.0.2")
	n := c.work("node-0")
	look := func(view nodeview.View) int {
		c.tellMute(n, &world{now: now, launchers: []*launcherPod{{pod: pod, view: view}}})
		return len(told.Events)
	}
	silent := nodeview.View{Lost: now.Add(-patience), Why: "an event is longer than 32 MiB"}
	assert.Zero(t, look(nodeview.View{}), "it has not been asked yet")
	assert.Zero(t, look(nodeview.View{Lost: now.Add(-time.Second)}))
	assert.Equal(t, 1, look(silent))
	assert.Equal(t, 1, look(silent))
	assert.Equal(t, "Warning LauncherSilent the launcher does not answer the controller: an event is longer than 32 MiB", <-told.Events)
	assert.Zero(t, look(nodeview.View{Connected: true, Lost: silent.Lost}))
	assert.Equal(t, 1, look(silent))
}
