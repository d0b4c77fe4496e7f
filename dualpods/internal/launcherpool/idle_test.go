package launcherpool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods/internal/nodeview"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestALauncherIsIdleFromWhenItWasReadyOrTheLastRequesterWasUnbound(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	launcher := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := launcherPod("a", "hash", func(pod *corev1.Pod) {
			pod.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-7 * time.Minute)),
			}}
		})
		if change != nil {
			change(pod)
		}
		return pod
	}
	unbound := func(ago time.Duration) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Annotations[podmeta.AnnotationUnboundSince] = now.Add(-ago).Format(time.RFC3339)
		}
	}
	with := func(states ...string) nodeview.View {
		view := nodeview.View{Instances: map[string]launcherapi.Instance{}}
		for _, s := range states {
			view.Instances[s] = launcherapi.Instance{State: s}
		}
		return view
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		view nodeview.View
		left time.Duration
		idle bool
	}{
		"one that nobody has been bound to":        {launcher(nil), with(), 3 * time.Minute, true},
		"one that a requester has left":            {launcher(unbound(2 * time.Minute)), with("sleeping", "failed"), 8 * time.Minute, true},
		"one that was started again since":         {launcher(unbound(time.Hour)), with("sleeping"), 3 * time.Minute, true},
		"one whose annotation somebody has broken": {launcher(func(pod *corev1.Pod) { pod.Annotations[podmeta.AnnotationUnboundSince] = "soon" }), with(), 3 * time.Minute, true},
		"one whose time is over": {launcher(func(pod *corev1.Pod) {
			pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Hour))
		}), with(), -50 * time.Minute, true},
		"one that is not ready yet":                       {launcher(func(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }), with(), 0, false},
		"one with a record":                               {launcher(func(pod *corev1.Pod) { pod.Annotations[podmeta.AnnotationBindingPrefix+"x"] = "{}" }), with("awake"), 0, false},
		"one with an instance that somebody woke by hand": {launcher(nil), with("sleeping", "awake"), 0, false},
		"one that goes already":                           {launcher(func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: now} }), with(), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			left, idle := idleFor(c.pod, c.view, 10*time.Minute, now)
			assert.Equal(t, c.idle, idle)
			assert.Equal(t, c.left, left)
		})
	}
}
