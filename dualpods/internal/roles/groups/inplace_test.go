package groups

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestWhatCanBeChangedInPlace(t *testing.T) {
	for name, c := range map[string]struct {
		so  func(*v1alpha1.ServingGroupTemplate)
		why string
	}{
		"the model": {func(t *v1alpha1.ServingGroupTemplate) { t.Roles[0].EntryTemplate = patched(newPatch) }, ""},
		"a label": {func(t *v1alpha1.ServingGroupTemplate) {
			edit(t, `"metadata": {`, `"metadata": {"labels": {"a": "b"}, `)
		}, ""},
		"replicas":     {func(t *v1alpha1.ServingGroupTemplate) { t.Roles[0].Replicas = new(int32(4)) }, ""},
		"the GPUs":     {func(t *v1alpha1.ServingGroupTemplate) { edit(t, `gpu": "1"`, `gpu": "2"`) }, "the change is one of the Pods (resources of container inference-server) of role prefill"},
		"the image":    {func(t *v1alpha1.ServingGroupTemplate) { edit(t, `"image": "requester"`, `"image": "other"`) }, "the change is one of the Pods (image of container inference-server) of role prefill"},
		"vLLM's image": {func(t *v1alpha1.ServingGroupTemplate) { edit(t, "image: vllm", "image: vllm-2") }, "the change is one of the engine's image, mounts or launcher of role prefill"},
		"a role more":  {func(t *v1alpha1.ServingGroupTemplate) { t.Roles = append(t.Roles, t.Roles[0]) }, "it has 2 roles instead of 1"},
		"subgroups":    {func(t *v1alpha1.ServingGroupTemplate) { t.SubGroupPolicy = &v1alpha1.SubGroupPolicy{SubGroupSize: 2} }, "the change is one of subGroupPolicy"},
		"the name":     {func(t *v1alpha1.ServingGroupTemplate) { t.Roles[0].Name = "p" }, "it has role p with 1 Pods in each replica instead of role prefill with 1"},
		"workers": {func(t *v1alpha1.ServingGroupTemplate) {
			t.Roles[0].WorkerReplicas, t.Roles[0].WorkerTemplate = new(int32(1)), t.Roles[0].EntryTemplate
		}, "it has role prefill with 2 Pods in each replica instead of role prefill with 1"},
		"the node": {func(t *v1alpha1.ServingGroupTemplate) {
			edit(t, `"containers":`, `"nodeSelector": {"a": "b"}, "containers":`)
		}, "the change is one of the Pods (nodeSelector) of role prefill"},
		"the launcher": {func(t *v1alpha1.ServingGroupTemplate) {
			edit(t, `"annotations": {`, `"annotations": {"hotseat.dev/launcher-config": "x", `)
		}, "the change is one of the launcher or the admin port of role prefill"},
	} {
		old := llama().Spec.Template
		old.Roles[0].EntryTemplate = patched(oldPatch)
		next := *old.DeepCopy()
		c.so(&next)
		from, problems := newPlan("a", &old, "requester")
		require.Empty(t, problems, name)
		to, problems := newPlan("b", &next, "requester")
		require.Empty(t, problems, name)
		assert.Equal(t, c.why, inPlace(from, to), name)
	}
	ranks := llama().Spec.Template
	ranks.Roles[0].InferenceServerConfig, ranks.Roles[0].EntryTemplate, ranks.Roles[0].WorkerReplicas = "a", nil, new(int32(1))
	other := *ranks.DeepCopy()
	other.Roles[0].InferenceServerConfig = "b"
	from, _ := newPlan("a", &ranks, "")
	to, _ := newPlan("b", &other, "")
	assert.Empty(t, inPlace(from, to))
	to.templates[0].worker = from.templates[0].worker
	assert.Equal(t, "the change is one of some ranks of a server alone of role prefill", inPlace(from, to))
}

// edit changes the text of the template of the first role.
func edit(t *v1alpha1.ServingGroupTemplate, from, to string) {
	t.Roles[0].EntryTemplate.Raw = []byte(strings.Replace(string(t.Roles[0].EntryTemplate.Raw), from, to, 1))
}

func TestPodFollowsItsTemplateAndKeepsWhatOthersAdded(t *testing.T) {
	was, is := map[string]string{"a": "1", "b": "1", "c": "1", "d": "1"}, map[string]string{"a": "2", "c": "1", "e": "1"}
	there := map[string]string{"a": "1", "b": "1", "c": "9", "d": "9", "x": "y"}
	assert.Equal(t, map[string]string{"a": "2", "c": "9", "d": "9", "e": "1", "x": "y"}, follow(there, was, is))
	assert.Equal(t, map[string]string{"e": "1"}, follow(nil, nil, map[string]string{"e": "1"}))
}
