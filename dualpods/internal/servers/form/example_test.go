package form

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestRequesterOfTheLLMDCommunityAsksForWhatLaunchersGive(t *testing.T) {
	text, err := os.ReadFile("../../../../examples/llm-d/requester.yaml")
	require.NoError(t, err)
	var pod corev1.Pod
	require.NoError(t, yaml.UnmarshalStrict(text, &pod))
	who, problems := podmeta.ReadRequester(&pod)
	require.Empty(t, problems)
	assert.EqualValues(t, 8082, who.AdminPort)
	form, problems := FromPatch(&pod, who.Patch)
	require.Empty(t, problems)
	assert.Equal(t, "hotseat.local/launcher:dev", form.Image)
	assert.EqualValues(t, 8000, form.Port)
	assert.Equal(t, 1, form.GPUs)
	assert.Contains(t, form.Args, "--model=ibm-granite/granite-3.3-2b-instruct")
}
