//go:build cluster && clusterlong

package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// TestGraceOfAPodRunsOnThoughTheControllerIsKilled has one Pod of each of three groups become unready: the
// first one stays so, the second one is ready again in time, and another Pod takes the place of the third.
func TestGraceOfAPodRunsOnThoughTheControllerIsKilled(t *testing.T) {
	s := newBareSite(t)
	const grace = 60 * time.Second
	serving := &v1alpha1.ModelServing{}
	serving.Namespace, serving.Name = s.ns, "llama"
	serving.Spec.Replicas, serving.Spec.RecoveryPolicy = new(int32(3)), v1alpha1.RecoverRole
	serving.Spec.Template.RestartGracePeriodSeconds = new(int64(grace / time.Second))
	serving.Spec.Template.Roles = []v1alpha1.ServingRole{plainRole(t, "prefill", "one", 1), plainRole(t, "decode", "one", 1)}
	r := &stages{s: s, pods: map[types.UID]*corev1.Pod{}, held: map[string]bool{}, had: map[string]bool{}}
	stop := s.followAll(r.tell, client.MatchingLabels{podmeta.LabelServing: "llama"})
	defer stop()
	require.NoError(t, s.api.Create(t.Context(), serving))
	s.runs("llama", 3)
	s.eventually("all groups are known to have run", func() bool {
		return !slices.ContainsFunc(s.modelServing("llama").Status.Groups, func(g v1alpha1.ServingGroupStatus) bool { return g.Restart == nil || len(g.Restart.Ran) != 2 })
	})
	late, back, lost := "llama-0-decode-0-0", "llama-1-decode-0-0", "llama-2-decode-0-0"
	before := map[string]types.UID{}
	for name, pod := range s.requesters() {
		before[name] = pod.UID
	}
	r.begin(late, back, lost)
	noted := func() (since []time.Time) {
		for _, g := range s.modelServing("llama").Status.Groups {
			if g.Restart != nil && len(g.Restart.NotReady) == 1 {
				since = append(since, g.Restart.NotReady[0].Since.Time)
			}
		}
		return since
	}
	s.eventually("the status has since when they are not ready", func() bool { return len(noted()) == 3 })
	began := noted()[0]

	s.delete(lost)
	s.eventually("the third has another Pod", func() bool { uid := s.uidOf(lost); return uid != "" && uid != before[lost] })
	another := s.uidOf(lost)
	r.begin(late)
	<-time.After(time.Until(began.Add(grace / 2)))
	assert.Equal(t, []time.Time{began}, noted(), "the others are ready again")
	s.killController(s.controller())
	killed := time.Now()

	s.eventually("the Pod is recreated", func() bool { uid := s.uidOf(late); return uid != "" && uid != before[late] })
	created := s.pod(late).CreationTimestamp.Time // in whole seconds
	assert.False(t, created.Before(began.Add(grace).Truncate(time.Second)), "%s after %s", created, began)
	assert.True(t, created.Before(killed.Add(grace)), "%s: the new controller has not begun the grace again at %s", created, killed)
	r.begin()
	s.runs("llama", 3)
	after := map[string]types.UID{}
	for name, pod := range s.requesters() {
		after[name] = pod.UID
	}
	before[late], before[lost] = s.uidOf(late), another
	assert.Equal(t, before, after, "no other Pod was recreated")
	s.eventSays("the Pods of replica decode-0 of group llama-0 are recreated: Pod " + late + " was ready, and has not been for 1m0s")
}
