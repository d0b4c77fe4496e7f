//go:build cluster

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// pairs follows the Pods of a group, and says by which revisions a selector finds a ready server of each
// role.
type pairs struct {
	mu    sync.Mutex
	pods  map[types.UID]*corev1.Pod
	roles int      // of the group
	says  []string // what was found, if it differs from what was found before
	wrong []string
}

func (p *pairs) tell(pod *corev1.Pod, gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pods[pod.UID] = pod; gone {
		delete(p.pods, pod.UID)
	}
	found, hashes := map[string][]string{}, map[string]string{}
	for _, is := range p.pods {
		if !is.DeletionTimestamp.IsZero() {
			continue
		}
		revision, role := is.Labels[podmeta.LabelServingRevision], is.Labels[podmeta.LabelServingRole]
		if hash := is.Labels[podmeta.LabelRoleTemplateHash]; hashes[revision+role] != "" && hashes[revision+role] != hash {
			p.wrong = append(p.wrong, fmt.Sprintf("revision %s has two templates of %s", revision, role))
		}
		hashes[revision+role] = is.Labels[podmeta.LabelRoleTemplateHash]
		if readyPod(is) && !slices.Contains(found[revision], role) {
			found[revision] = append(found[revision], role)
		}
	}
	var whole []string
	for _, revision := range slices.Sorted(maps.Keys(found)) {
		if len(found[revision]) == p.roles {
			whole = append(whole, revision)
		}
	}
	if says := strings.Join(whole, " "); len(p.says) == 0 || p.says[len(p.says)-1] != says {
		p.says = append(p.says, says)
	}
}

// seen returns what was found since the Pods ran, one after the other.
func (p *pairs) seen() (says, wrong []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.says), p.wrong
}

func TestOnlyTheChangedRoleIsReplacedAndPairsFitTogether(t *testing.T) {
	s := newPool(t, nil)
	serving := &v1alpha1.ModelServing{}
	serving.Namespace, serving.Name = s.ns, "llama"
	serving.Spec.RolloutStrategy.Type = v1alpha1.RoleRollingUpdate
	serving.Spec.Template.Roles = []v1alpha1.ServingRole{
		{Name: "decode", Replicas: new(int32(2)), EntryTemplate: s.entryOf("one")}, {Name: "prefill", EntryTemplate: s.entryOf("one")},
	}
	require.NoError(t, s.api.Create(t.Context(), serving))
	all := []string{"llama-0-decode-0-0", "llama-0-decode-1-0", "llama-0-prefill-0-0"}
	s.settles(all, nothing)
	before, first := s.requesters(), s.modelServing("llama").Status.Revision

	found := &pairs{pods: map[types.UID]*corev1.Pod{}, roles: 2}
	for _, pod := range before {
		found.pods[pod.UID] = pod
	}
	stop := s.followAll(found.tell, client.MatchingLabels{podmeta.LabelServing: "llama"})
	defer stop()
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.Template.Roles[0].EntryTemplate = s.entryOf("two") })
	s.eventually("the template is rolled out", func() bool {
		status := s.modelServing("llama").Status
		return status.Revision != first && status.CurrentRevision == status.Revision && status.ReadyReplicas == 1
	})
	after, second := s.requesters(), s.modelServing("llama").Status.Revision
	assert.Equal(t, before[all[2]].UID, after[all[2]].UID, "the prefill server stays")
	for _, name := range all[:2] {
		assert.NotEqual(t, before[name].UID, after[name].UID)
	}
	for _, pod := range after {
		assert.Equal(t, second, pod.Labels[podmeta.LabelServingRevision])
	}
	s.eventually("the watch has told all", func() bool {
		says, _ := found.seen()
		return len(says) > 0 && says[len(says)-1] == second
	})
	says, wrong := found.seen()
	assert.Equal(t, []string{first, second}, says, "exactly one pair at every moment")
	assert.Empty(t, wrong)
	answered, err := s.ask(s.leadsToLauncher(all[0]), "org/two")
	require.NoError(t, err)
	assert.Equal(t, "org/two", answered)
}
