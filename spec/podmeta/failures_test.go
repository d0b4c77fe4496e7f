package podmeta_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestFailuresComeBackAsTheyWereWrittenUntilTheyAreOld(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	pod := &corev1.Pod{}
	assert.Nil(t, podmeta.ReadFailures(pod, "model-1"))
	f := podmeta.Failures{RequesterUID: "u", Count: 2, Last: now.In(time.FixedZone("east", 3600)), Why: "is failed (exit code 1)"}
	require.NoError(t, f.Put(pod, "model-1"))
	assert.Equal(t, map[string]string{"hotseat.dev/failed.model-1": `{"requesterUID":"u","count":2,"last":"2026-11-22T12:00:00Z","why":"is failed (exit code 1)"}`}, pod.Annotations)
	f.Last = now
	assert.Equal(t, &f, podmeta.ReadFailures(pod, "model-1"))
	assert.Nil(t, podmeta.ReadFailures(pod, "model-2"))

	for _, damaged := range []string{"{", `{"count":0,"last":"2026-11-22T12:00:00Z"}`, `{"count":3}`} {
		pod.Annotations["hotseat.dev/failed.damaged"] = damaged
		assert.Nil(t, podmeta.ReadFailures(pod, "damaged"))
	}
	pod.Annotations["another"] = "stays"
	podmeta.ForgetFailures(pod, now.Add(podmeta.FailuresKept))
	assert.NotContains(t, pod.Annotations, "hotseat.dev/failed.damaged")
	assert.Equal(t, &f, podmeta.ReadFailures(pod, "model-1"))
	podmeta.ForgetFailures(pod, now.Add(podmeta.FailuresKept+time.Second))
	assert.Equal(t, map[string]string{"another": "stays"}, pod.Annotations)
}
