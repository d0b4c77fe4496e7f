package act

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods/internal/model/decide"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

var one = resource.MustParse("1")

func TestPodIsReadByWhatRunsIt(t *testing.T) {
	begin, later := time.Unix(1000, 0).UTC(), time.Unix(2000, 0).UTC()
	of := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "p", CreationTimestamp: metav1.NewTime(begin), Annotations: map[string]string{podmeta.AnnotationInferenceServerConfig: "llama-a"},
			Labels: map[string]string{podmeta.LabelModel: "llama", podmeta.LabelModelEntry: "a"},
		}}
		change(p)
		return p
	}
	status := func(text string) *corev1.Pod {
		return of(func(p *corev1.Pod) { p.Annotations[podmeta.AnnotationStatus] = text })
	}
	condition := func(c corev1.PodCondition) *corev1.Pod {
		return of(func(p *corev1.Pod) {
			c.LastTransitionTime = metav1.NewTime(later)
			p.Status.Conditions = []corev1.PodCondition{c}
		})
	}
	container := func(s corev1.ContainerStatus) *corev1.Pod {
		return of(func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{s} })
	}
	ended := &corev1.ContainerStateTerminated{ExitCode: 1, Message: "out of memory", FinishedAt: metav1.NewTime(later)}
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		in   v1alpha1.ModelRunsIn
		want decide.Pod
	}{
		"a requester without a status":          {of(func(*corev1.Pod) {}), v1alpha1.RunsInLauncher, decide.Pod{Since: begin}},
		"a requester that serves":               {status(`{"state":"Serving","since":"1970-01-01T00:33:20Z"}`), v1alpha1.RunsInLauncher, decide.Pod{Ready: true, Since: later, Hot: true}},
		"a requester that is to wake its model": {of(func(p *corev1.Pod) { p.Annotations[podmeta.AnnotationPlacement] = `{"launcher":"l","instance":"i"}` }), v1alpha1.RunsInLauncher, decide.Pod{Since: begin, Hot: true}},
		"a requester whose server died":         {status(`{"state":"Serving","reason":"ServerGone","since":"1970-01-01T00:33:20Z"}`), v1alpha1.RunsInLauncher, decide.Pod{Since: begin}},
		"a requester whose engine fails": {status(`{"state":"Waiting","reason":"AttemptFailed","message":"why","since":"1970-01-01T00:33:20Z"}`), v1alpha1.RunsInLauncher,
			decide.Pod{Since: begin, Failure: &decide.Failure{Reason: "EngineFailed", Message: "why", Time: later}}},
		"a requester that is refused": {status(`{"state":"Waiting","reason":"LauncherRefuses","message":"why","since":"1970-01-01T00:33:20Z"}`), v1alpha1.RunsInLauncher,
			decide.Pod{Since: begin, Failure: &decide.Failure{Reason: "LauncherRefuses", Message: "why", Time: later}}},
		"a requester with wrong input": {status(`{"Errors":["no such flag"],"since":"1970-01-01T00:33:20Z"}`), v1alpha1.RunsInLauncher,
			decide.Pod{Since: begin, Failure: &decide.Failure{Reason: decide.ReasonInvalid, Message: "no such flag", Time: later}}},
		"a requester whose input its launcher cannot use": {status(`{"state":"Waiting","reason":"InvalidInput","message":"why","since":"1970-01-01T00:33:20Z"}`), v1alpha1.RunsInLauncher,
			decide.Pod{Since: begin, Failure: &decide.Failure{Reason: decide.ReasonInvalid, Message: "why", Time: later}}},
		"a requester with a patch of somebody else": {of(func(p *corev1.Pod) {
			p.Annotations[podmeta.AnnotationStatus] = `{"Errors":["stands beside"],"since":"1970-01-01T00:33:20Z"}`
			p.Annotations[podmeta.AnnotationServerPatch] = "spec: {}"
		}), v1alpha1.RunsInLauncher, decide.Pod{Since: begin, Failure: &decide.Failure{
			Reason: "EditedByOthers", Message: "somebody else has edited the annotations of Pod p that say which model it has: edit the Model instead", Time: later,
		}}},
		"a requester that waits":      {status(`{"state":"Waiting","reason":"LauncherStarting"}`), v1alpha1.RunsInLauncher, decide.Pod{Since: begin}},
		"what the kubelet says of it": {condition(corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}), v1alpha1.RunsInLauncher, decide.Pod{Since: begin}},
		"an unschedulable Pod": {condition(corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/2 nodes"}), v1alpha1.RunsInPods,
			decide.Pod{Since: begin, Unschedulable: &decide.Failure{Reason: decide.ReasonUnschedulable, Message: "0/2 nodes", Time: later}}},
		"a gated Pod":                {condition(corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "SchedulingGated"}), v1alpha1.RunsInLauncher, decide.Pod{Since: begin}},
		"an engine that is ready":    {condition(corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}), v1alpha1.RunsInPods, decide.Pod{Ready: true, Since: later, Hot: true}},
		"one that is not any more":   {condition(corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}), v1alpha1.RunsInPods, decide.Pod{Since: later}},
		"an engine that failed once": {container(corev1.ContainerStatus{State: corev1.ContainerState{Terminated: ended}}), v1alpha1.RunsInPods, decide.Pod{Since: begin}},
		"an engine that failed again": {container(corev1.ContainerStatus{RestartCount: 1, LastTerminationState: corev1.ContainerState{Terminated: ended}}), v1alpha1.RunsInPods,
			decide.Pod{Since: begin, Failure: &decide.Failure{Reason: "EngineFailed", Message: "the engine ended with exit code 1: out of memory", Time: later}}},
		"a model that is not fetched": {of(func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: podmeta.FetchContainer, RestartCount: 1, LastTerminationState: corev1.ContainerState{Terminated: ended}}}
		}), v1alpha1.RunsInPods,
			decide.Pod{Since: begin, Failure: &decide.Failure{Reason: "EngineFailed", Message: "the model was not fetched: modelfetch ended with exit code 1: out of memory", Time: later}}},
		"an image that is not there": {container(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "none"}}}), v1alpha1.RunsInPods,
			decide.Pod{Since: begin, Failure: &decide.Failure{Reason: "ErrImagePull", Message: "none", Time: begin}}},
		"a Pod that serves and leaves": {of(func(p *corev1.Pod) {
			p.Labels[podmeta.LabelServes], p.Annotations[podmeta.AnnotationServed], p.Annotations[corev1.PodDeletionCost] = "llama", "x", "-1"
			p.DeletionTimestamp = &metav1.Time{Time: later}
		}), v1alpha1.RunsInPods, decide.Pod{Since: begin, Serving: true, Admitted: true, Leaving: true, Cost: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.want.Name = "p"
			got := podOf(tt.pod, tt.in)
			got.Since = got.Since.UTC()
			for _, f := range []*decide.Failure{got.Failure, got.Unschedulable} {
				if f != nil {
					f.Time = f.Time.UTC()
				}
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestPodWhoseAnnotationsOthersEditIsReplaced(t *testing.T) {
	s := newSite(t, simple)
	s.pass(0)
	s.count.Held = 1
	s.pass(time.Second)
	s.addPod("p", "default", `{"state":"Waiting","errors":["stands beside"]}`)
	p := s.pod("p")
	p.Annotations[podmeta.AnnotationServerPatch] = "spec: {}"
	require.NoError(t, s.api.Update(t.Context(), p))
	s.pass(time.Second)
	s.pass(time.Minute) // the back-off is over
	assert.Equal(t, "EditedByOthers", s.model().Status.Specs[0].LastFailure.Reason)
	assert.True(t, meta.IsStatusConditionTrue(s.model().Status.Conditions, v1alpha1.ConditionAccepted), "nobody has to edit the Model")
	assert.Equal(t, int32(1), *s.deployment("llama-default").Spec.Replicas)
}
