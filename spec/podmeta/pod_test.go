package podmeta_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestWhatAPodWaitsForIsToldWhereItIsMoreThanAStart(t *testing.T) {
	waiting := func(reason string) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{Name: "beside", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			{Name: "inference-server", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "m"}}},
		}}}
	}
	unplaced := func(reason string) *corev1.Pod {
		pod := waiting("ErrImagePull")
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: "a taint"}}
		return pod
	}
	for _, c := range []struct {
		pod   *corev1.Pod
		why   string
		stuck bool
	}{
		{&corev1.Pod{}, "", false},
		{waiting(""), "", false},
		{waiting("ContainerCreating"), "", false},
		{waiting("PodInitializing"), "", false},
		{waiting("CrashLoopBackOff"), "waits in its container inference-server: CrashLoopBackOff m", true},
		{unplaced(corev1.PodReasonSchedulingGated), "has not been placed: a taint", false},
		{unplaced(corev1.PodReasonUnschedulable), "has not been placed: a taint", true},
	} {
		why, stuck := podmeta.Waits(c.pod)
		assert.Equal(t, c.why, why)
		assert.Equal(t, c.stuck, stuck, c.why)
	}
}

func TestKubeletSaysThatItEndsAPodByTheReasonOfReady(t *testing.T) {
	of := func(kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: kind, Status: status, Reason: reason}}}}
	}
	assert.False(t, podmeta.Ending(&corev1.Pod{}))
	assert.True(t, podmeta.Ending(of(corev1.PodReady, corev1.ConditionFalse, "PodFailed")))
	assert.False(t, podmeta.Ending(of(corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady")), "a probe fails")
	assert.False(t, podmeta.Ending(of(corev1.PodReady, corev1.ConditionTrue, "PodFailed")))
	assert.False(t, podmeta.Ending(of(corev1.PodInitialized, corev1.ConditionFalse, "PodFailed")))
}
