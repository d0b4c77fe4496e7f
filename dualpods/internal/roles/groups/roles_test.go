package groups

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// pairs makes a ModelServing with so many groups of a prefill replica and so many decode replicas,
// all of the image a, which run, and whose templates are rolled out role by role.
func pairs(t *testing.T, groups, decode int32) *site {
	t.Helper()
	s := newSite(t, func(m *v1alpha1.ModelServing) {
		m.Spec.Replicas, m.Spec.RolloutStrategy.Type = &groups, v1alpha1.RoleRollingUpdate
		m.Spec.Template.Roles = []v1alpha1.ServingRole{
			{Name: "prefill", EntryTemplate: router("a")}, {Name: "decode", Replicas: &decode, EntryTemplate: router("a")},
		}
	}, nil)
	s.settle()
	return s
}

func (s *site) decodeBecomes(image string) {
	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Template.Roles[1].EntryTemplate = router(image) })
}

// live returns the Pods that stay.
func (s *site) live() (all []corev1.Pod) {
	s.t.Helper()
	var pods corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &pods))
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !p.DeletionTimestamp.IsZero() })
}

func (s *site) uids(role string) (all []types.UID) {
	for _, pod := range s.live() {
		if pod.Labels[podmeta.LabelServingRole] == role {
			all = append(all, pod.UID)
		}
	}
	return all
}

// served returns by group and revision the roles that have a ready entry, and checks that those of a
// group and a revision fit together.
func (s *site) served() map[string]string {
	s.t.Helper()
	roles, images := map[string][]string{}, map[string]string{}
	for _, pod := range s.live() {
		key := pod.Labels[podmeta.LabelServingGroup] + " " + pod.Labels[podmeta.LabelServingRevision]
		role := pod.Labels[podmeta.LabelServingRole]
		if image, is := images[key+role], pod.Spec.Containers[0].Image; image != "" {
			require.Equal(s.t, image, is, "%s: a selector finds servers of one template", key+role)
		}
		images[key+role] = pod.Spec.Containers[0].Image
		if podmeta.Ready(&pod) && !slices.Contains(roles[key], role) {
			roles[key] = append(roles[key], role)
			slices.Sort(roles[key])
		}
	}
	found := map[string]string{}
	for key, has := range roles {
		found[key] = strings.Join(has, "+")
	}
	return found
}

// eachWrite calls a function after each write to a Pod.
type eachWrite struct {
	client.Client
	after func()
}

func (c *eachWrite) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	defer c.after()
	return c.Client.Delete(ctx, o, opts...)
}

func (c *eachWrite) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	defer c.after()
	return c.Client.Patch(ctx, o, patch, opts...)
}

// pairsOf counts the revisions by which a selector finds both roles of a group.
func (s *site) pairsOf(group string) (n int) {
	for key, roles := range s.served() {
		if strings.HasPrefix(key, group+" ") && roles == "decode+prefill" {
			n++
		}
	}
	return n
}

func TestOnlyTheRoleThatChangesIsReplaced(t *testing.T) {
	s := pairs(t, 2, 1)
	prefill, decode := s.uids("prefill"), s.uids("decode")
	revision := s.status().Revision
	s.decodeBecomes("b")
	s.passes(1)
	assert.Equal(t, []string{"llama-0-decode-0-0", "llama-0-prefill-0-0", "llama-1-prefill-0-0"}, s.names(), "one group at a time")
	s.settle()
	assert.Equal(t, prefill, s.uids("prefill"))
	assert.NotEqual(t, decode, s.uids("decode"))
	status := s.status()
	assert.NotEqual(t, revision, status.Revision)
	assert.Equal(t, []any{status.Revision, int32(2), int32(2)}, []any{status.CurrentRevision, status.UpdatedReplicas, status.ReadyReplicas})
	for _, pod := range s.live() {
		assert.Equal(t, status.Revision, pod.Labels[podmeta.LabelServingRevision], "the Pods that stay get the label")
	}
	assert.Equal(t, map[string]string{"llama-0-decode-0-0": "b", "llama-0-prefill-0-0": "a", "llama-1-decode-0-0": "b", "llama-1-prefill-0-0": "a"}, s.images())
}

func TestSelectorFindsOnePairAtEachMomentOfARollout(t *testing.T) {
	for _, first := range []string{"prefill", "decode"} {
		t.Run(first+" is the first role", func(t *testing.T) { findsOnePair(t, first == "decode") })
	}
}

func findsOnePair(t *testing.T, reverse bool) {
	t.Helper()
	s := pairs(t, 2, 2)
	prefill := s.uids("prefill")
	s.decodeBecomes("b")
	if reverse {
		s.change(func(m *v1alpha1.ModelServing) { slices.Reverse(m.Spec.Template.Roles) })
	}
	s.c.opts.API = &eachWrite{Client: s.api, after: func() {
		for _, group := range []string{"llama-0", "llama-1"} {
			assert.Equal(t, 1, s.pairsOf(group), "%v", s.served())
		}
	}}
	for n := range 30 {
		s.passes(1)
		if n%3 == 2 {
			s.allReady()
		}
	}
	assert.Equal(t, prefill, s.uids("prefill"))
	assert.Equal(t, []string{"b", "b"}, []string{s.images()["llama-0-decode-0-0"], s.images()["llama-0-decode-1-0"]})
	assert.Equal(t, s.status().Revision, s.status().CurrentRevision)
}

func TestKeptReplicasOfARoleAreRebuiltAsTheyWere(t *testing.T) {
	s := pairs(t, 1, 3)
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.Template.Roles[1].RollingUpdateConfiguration = &v1alpha1.RollingUpdateConfiguration{Partition: new(intstr.FromString("50%")), MaxUnavailable: new(intstr.FromInt32(2))}
	})
	assert.Equal(t, s.status().Revision, s.status().CurrentRevision, "the configuration changes no Pod")
	s.decodeBecomes("b")
	s.settle()
	want := map[string]string{"llama-0-decode-0-0": "a", "llama-0-decode-1-0": "a", "llama-0-decode-2-0": "b", "llama-0-prefill-0-0": "a"}
	assert.Equal(t, want, s.images())
	assert.Equal(t, v1alpha1.GroupRunning, s.groups()[0].State)
	assert.NotEqual(t, s.status().Revision, s.status().CurrentRevision)
	for _, name := range []string{"llama-0-decode-1-0", "llama-0-prefill-0-0"} {
		require.NoError(t, s.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}))
	}
	s.settle()
	assert.Equal(t, want, s.images())

	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Template.Roles[1].RollingUpdateConfiguration.Partition = nil })
	s.passes(1)
	assert.Equal(t, []string{"llama-0-decode-2-0", "llama-0-prefill-0-0"}, s.names(), "two may not be ready")
	s.settle()
	assert.Equal(t, "b", s.images()["llama-0-decode-0-0"])
	assert.Equal(t, s.status().Revision, s.status().CurrentRevision)
}

func TestRoleThatIsAddedAndOneThatGoesChangeNoOther(t *testing.T) {
	s := pairs(t, 1, 1)
	prefill := s.uids("prefill")
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.Template.Roles = []v1alpha1.ServingRole{{Name: "router", EntryTemplate: router("a")}, m.Spec.Template.Roles[0]}
	})
	s.settle()
	assert.Equal(t, []string{"llama-0-prefill-0-0", "llama-0-router-0-0"}, s.names())
	assert.Equal(t, prefill, s.uids("prefill"))
	assert.Equal(t, s.status().Revision, s.status().CurrentRevision)
}

func TestSecondChangeInTheMiddleOfARolloutByRoles(t *testing.T) {
	s := pairs(t, 1, 3)
	prefill := s.uids("prefill")
	s.decodeBecomes("b")
	s.passes(4)
	s.allReady()
	s.passes(1)
	s.decodeBecomes("c")
	s.settle()
	assert.Equal(t, prefill, s.uids("prefill"))
	assert.Equal(t, map[string]string{"llama-0-decode-0-0": "c", "llama-0-decode-1-0": "c", "llama-0-decode-2-0": "c", "llama-0-prefill-0-0": "a"}, s.images())
	assert.Equal(t, s.status().Revision, s.status().CurrentRevision)
}
