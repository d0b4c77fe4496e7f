package podmeta

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSwapToIsReadAsItIsWritten(t *testing.T) {
	for text, want := range map[string]SwapTo{
		SwapTo{Revision: "r", Try: 2, Forward: true}.Encode(): {Revision: "r", Try: 2, Forward: true},
		``: {}, `{`: {}, `{"revision": "r"}`: {}, `{"revision": "r", "try": -1}`: {}, `{"try": 1}`: {},
	} {
		pod := &corev1.Pod{}
		pod.Annotations = map[string]string{AnnotationSwapTo: text}
		assert.Empty(t, ReadSwapTo(pod), "it is somebody's own Pod")
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "hotseat.dev/v1alpha1", Kind: KindServing, Controller: new(true)}}
		assert.Equal(t, want, ReadSwapTo(pod), text)
	}
	assert.Equal(t, "r.2", SwapTo{Revision: "r", Try: 2}.ID())
	assert.True(t, IsReservedAnnotation(AnnotationSwapTo), "no template may have it")
}

func TestRecordNamesBothInstancesWhileItIsChanged(t *testing.T) {
	since := time.Date(2026, 11, 30, 12, 0, 0, 5, time.UTC)
	b := Binding{
		Instance: "old", RequesterUID: "uid", Namespace: "ns", Name: "req", GPUs: []string{"GPU-0"}, ServingPort: 8000, SpecHash: "o", Attempt: 4, Since: since,
		Change: &Change{To: "r.1", Instance: "new", ServingPort: 8001, SpecHash: "n", New: true, Since: since.Add(time.Hour)},
	}
	key, value, err := b.Encode()
	require.NoError(t, err)
	pod := &corev1.Pod{}
	pod.Namespace, pod.Annotations = "ns", map[string]string{key: value}
	read, problems := ReadBindings(pod)
	require.Empty(t, problems)
	require.Equal(t, []Binding{b}, read)
	next := b.Next()
	assert.Equal(t, []any{"new", "r.1", 1, int32(8001), []string{"GPU-0"}}, []any{next.Instance, next.ChangedBy, next.Attempt, next.ServingPort, next.GPUs})
	assert.NotEqual(t, b.SwapKey(), next.SwapKey())
	assert.True(t, b.Has("old") && b.Has("new") && !b.Has("other"))
	_, _, err = next.Encode()
	require.NoError(t, err)

	for what, so := range map[string]func(*Change){
		"change.to is missing":                   func(c *Change) { c.To = "" },
		"change.instance is missing":             func(c *Change) { c.Instance = "" },
		"change.instance is the record's own":    func(c *Change) { c.Instance = "old" },
		"change: specHash is missing":            func(c *Change) { c.SpecHash = "" },
		"change: since is missing":               func(c *Change) { c.Since = time.Time{} },
		"change: servingPort 0 is none: it shou": func(c *Change) { c.ServingPort = 0 },
	} {
		change := *b.Change
		so(&change)
		wrong := b
		wrong.Change = &change
		_, _, err := wrong.Encode()
		assert.ErrorContains(t, err, what)
	}
	b.Change = &Change{To: "r.1", Failure: "no room", Misfit: true}
	_, _, err = b.Encode()
	require.NoError(t, err, "one that failed before there was an instance")
	assert.Nil(t, b.Next())
}
