package groups

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestWantedGroupsHaveTheRolesOfTheirRevisions(t *testing.T) {
	w := world()
	older := *w.newRevision()
	s := w.Serving
	s.Spec.Replicas = new(int32(4))
	s.Spec.Template.Roles = []v1alpha1.ServingRole{{Name: "decode", WorkerReplicas: new(int32(1)), InferenceServerConfig: "a"}}
	present := hash(content(&s.Spec.Template))
	s.Status.Groups = []v1alpha1.ServingGroupStatus{{Name: "llama-0", Revision: w.Revision}, {Name: "llama-1", Revision: present}, {Name: "llama-2", Revision: "gone"}}
	all := WantedGroups(s, []appsv1.ControllerRevision{older}, nil)
	require.Len(t, all, 4)
	for n, want := range [][]string{{"llama-0-prefill-0-0"}, {"llama-1-decode-0-0", "llama-1-decode-0-1"}} {
		require.Len(t, all[n].Replicas, 1)
		assert.Equal(t, want, all[n].Replicas[0].Pods)
		assert.Equal(t, &s.Status.Groups[n], all[n].Status)
	}
	for _, unknown := range all[2:] {
		assert.Nil(t, unknown.Status, "%s: its revision is not known", unknown.Name)
		assert.Empty(t, unknown.Replicas)
	}
}

func TestTemplatesAreReadAgainOnceTheyHaveChanged(t *testing.T) {
	var m Memory
	size := func(version string, workers int32) int {
		s := world().Serving
		s.UID, s.ResourceVersion = "uid", version
		s.Status.Groups = []v1alpha1.ServingGroupStatus{{Name: "llama-0"}}
		s.Spec.Template.Roles[0].WorkerReplicas = &workers
		m.Begin()
		return len(m.WantedGroups(s, nil, nil)[0].Replicas[0].Pods)
	}
	assert.Equal(t, 1, size("1", 0))
	assert.Equal(t, 1, size("1", 1), "it is remembered")
	assert.Equal(t, 2, size("2", 1), "it has another version")
	m.Begin()
	assert.Equal(t, 3, size("2", 2), "nobody has asked for it since")
	assert.Equal(t, 4, size("", 3))
	assert.Equal(t, 5, size("", 4), "it has no version")
}
