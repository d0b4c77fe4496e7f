package act

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestDeploymentThatIsScaledAgainAndAgainIsUndoneWithPauses(t *testing.T) {
	s := newSite(t, `{spec: {url: 'hf://o/m', resourceProfile: gpu, minReplicas: 1, targetRequests: 1}}`)
	s.pass(0)
	replicas := func() int32 { return *s.deployment("llama-default").Spec.Replicas }
	scale := func() {
		s.edit("llama-default", func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(7)) })
	}
	for range undoneAtOnce {
		scale()
		s.pass(time.Second)
		require.Equal(t, int32(1), replicas())
	}
	told := s.events()
	require.Len(t, told, undoneAtOnce+1)
	assert.Contains(t, told[0], "Warning ScaledByOthers entry default: the Deployment was scaled from 1 to 7 replicas by somebody else")
	assert.Contains(t, told[undoneAtOnce], "Warning ScaledAgainAndAgain entry default: a program scales the Deployment again and again, and the controller has undone it 3 times: it now waits before each undo, for 1s at first and for 30s at most")
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		pause *= time.Second
		scale()
		s.pass(pause / 2)
		require.Equal(t, int32(7), replicas(), "it stays for a while")
		result, err := s.c.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
		require.NoError(t, err)
		assert.LessOrEqual(t, result.RequeueAfter, pause/2)
		assert.Positive(t, result.RequeueAfter)
		assert.Empty(t, s.events())
		s.pass(pause / 2)
		require.Equal(t, int32(1), replicas())
		assert.Len(t, s.events(), 1, "each undo is told, and the pause only once")
	}
	scale()
	s.pass(time.Second)
	require.Equal(t, int32(7), replicas())
	s.count.Held = 3
	s.pass(0)
	assert.Equal(t, int32(3), replicas(), "the controller's own number has changed")
	s.pass(2 * time.Minute)
	scale()
	s.pass(time.Second)
	assert.NotEqual(t, int32(7), replicas(), "the others were long ago")
}
