package binding

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

func TestGraceIsThatOfThePod(t *testing.T) {
	of := func(seconds int64) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &seconds}}
	}
	assert.Equal(t, 30*time.Second, graceOf(&corev1.Pod{}))
	assert.Equal(t, 5*time.Second, graceOf(of(5)))
	assert.Zero(t, graceOf(of(-1)))
	assert.Equal(t, requesterapi.MaxDrain, graceOf(of(1<<62)))
}

func TestGraceEndsAtTheDeletionTimestamp(t *testing.T) {
	assert.Zero(t, graceEnds(&corev1.Pod{}))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: now}}}
	assert.Equal(t, now, graceEnds(pod))
}

func TestFormIsReadAgainOnlyIfThePodAsksForAnother(t *testing.T) {
	c := New(t.Context(), Options{}, logr.Discard())
	n := c.work("node-0")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "a", ResourceVersion: "1", Annotations: map[string]string{podmeta.AnnotationServerPatch: "{}"}},
		Spec:       corev1.PodSpec{NodeName: "node-0", Containers: []corev1.Container{{Name: podmeta.ServingContainer}}},
	}
	read := podmeta.Requester{Input: podmeta.InputPatch}
	_, problems := c.form(t.Context(), n, pod, read)
	require.NotEmpty(t, problems, "the patch has no image")
	known := n.forms["a"]
	known.problems = []podmeta.Problem{{Message: "as it was read"}}
	n.forms["a"] = known
	again := func(change func(*corev1.Pod)) string {
		pod = pod.DeepCopy()
		pod.ResourceVersion += "0"
		change(pod)
		_, problems := c.form(t.Context(), n, pod, read)
		require.NotEmpty(t, problems)
		return problems[0].Message
	}
	assert.Equal(t, "as it was read", again(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }))
	assert.Equal(t, "as it was read", again(func(p *corev1.Pod) { p.Status.PodIP = "10.1.0.2" }))
	for what, change := range map[string]func(*corev1.Pod){
		"its labels":      func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} },
		"its annotations": func(p *corev1.Pod) { p.Annotations["a"] = "b" },
		"its spec":        func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"a"} },
	} {
		n.forms["a"] = readForm{version: known.version, from: formSource(pod), problems: known.problems}
		assert.NotEqual(t, "as it was read", again(change), what)
	}
}
