package binding

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestALauncherThatDoesNotRunIsStuckOnlyWhereSomebodyHasToHelp(t *testing.T) {
	waiting := func(reason string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "copy", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "m"}}}},
		}}
	}
	unplaced := func(reason string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: "a taint"}},
		}}
	}
	for _, c := range []struct {
		pod   *corev1.Pod
		stuck bool
		why   string
	}{
		{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "l"}}, false, "launcher l is starting"},
		{waiting("ContainerCreating"), false, "launcher l is starting"},
		{waiting("PodInitializing"), false, "launcher l is starting"},
		{waiting("ErrImagePull"), true, "launcher l waits in its container copy: ErrImagePull m"},
		{waiting("CrashLoopBackOff"), true, "launcher l waits in its container copy: CrashLoopBackOff m"},
		{unplaced(""), false, "launcher l has not been placed: a taint"},
		{unplaced(corev1.PodReasonUnschedulable), true, "launcher l has not been placed: a taint"},
	} {
		assert.Equal(t, &dualpods.LauncherWait{Why: c.why, Stuck: c.stuck}, dualpods.WaitForLauncher(c.pod))
	}
}

func TestALongNoteIsShortenedToWhatAnEventCanHave(t *testing.T) {
	assert.Len(t, dualpods.Truncate(strings.Repeat("é", 600), decide.MaxNote), decide.MaxNote-1, "a letter is not cut in two")
	assert.Equal(t, "short", dualpods.Truncate("short", decide.MaxNote))
}

func TestRequesterThatCannotRunIsToldWhy(t *testing.T) {
	pod := running1("ns", "req", podmeta.ServingContainer)
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}
	pod.Status.ContainerStatuses[0].State = waits
	c := New(t.Context(), Options{}, logr.Discard())
	w := &world{pods: map[types.UID]*corev1.Pod{pod.UID: pod}, asked: map[types.UID]requester{pod.UID: {problems: []podmeta.Problem{{Message: "its input is not read"}}}}}
	see := func() decide.Observation {
		o := fresh()
		o.SPI = nil
		c.observePod(t.Context(), &o, c.work("node-0"), w, pod)
		o.Problems, o.Requester.Finalizer = nil, true
		return o
	}
	step := decide.Decide(see())
	assert.Equal(t, decide.RequesterNotRunning, step.Reason)
	assert.True(t, step.Warn)
	assert.Equal(t, "its Pod waits in its container inference-server: ImagePullBackOff no such image", step.Why)
	pod.Status.ContainerStatuses[0].State.Waiting.Reason = "ContainerCreating"
	assert.Equal(t, "not running", decide.Decide(see()).Rule, "it comes by itself")
}
