//go:build cluster && clusterlong

package installation

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

const chartCRDs = "../../../../deploy/chart/crds"

// kubectl runs kubectl, which must succeed.
func kubectl(t *testing.T, c *cluster.Cluster, input string, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), strings.NewReader(input), args...)
	require.NoError(t, err)
	return string(out)
}

// objectsOf are the paths of a schema's objects that have fields, for kubectl explain.
func objectsOf(path string, schema *apiextensionsv1.JSONSchemaProps) []string {
	if schema.Items != nil {
		return objectsOf(path, schema.Items.Schema)
	}
	if len(schema.Properties) == 0 {
		return nil
	}
	all := []string{path}
	for name, property := range schema.Properties {
		all = append(all, objectsOf(path+"."+name, &property)...)
	}
	return all
}

// TestKubectlAppliesAndExplainsEachDefinition applies them as a user without Helm
// does. kubectl keeps what it applied in an annotation, and an API server takes no
// more than 262,144 bytes of annotations.
func TestKubectlAppliesAndExplainsEachDefinition(t *testing.T) {
	c, api := server(t)
	kubectl(t, c, "", "apply", "-f", chartCRDs)
	kubectl(t, c, "", "wait", "--for=condition=Established", "--timeout="+patience.Wait().String(), "-f", chartCRDs)
	again := kubectl(t, c, "", "apply", "-f", chartCRDs)
	assert.NotContains(t, again, "configured", "what is there is what was applied")
	var crds apiextensionsv1.CustomResourceDefinitionList
	require.NoError(t, api.List(t.Context(), &crds))
	files, err := filepath.Glob(chartCRDs + "/*.yaml")
	require.NoError(t, err)
	require.Len(t, crds.Items, len(files))
	require.NotEmpty(t, files)
	for _, crd := range crds.Items {
		t.Logf("%s takes %d of 262144 bytes", crd.Name, len(crd.Annotations["kubectl.kubernetes.io/last-applied-configuration"]))
		for _, condition := range crd.Status.Conditions {
			assert.NotEqual(t, apiextensionsv1.NonStructuralSchema, condition.Type, condition.Message)
		}
		objects := objectsOf(crd.Spec.Names.Singular, crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
		if sub := crd.Spec.Versions[0].Subresources; sub != nil && sub.Status != nil && crd.Spec.Names.Kind != "RoleScaler" { // a number, of which its ModelServing tells
			assert.Contains(t, objects, crd.Spec.Names.Singular+".status.conditions")
		}
		require.Eventually(t, func() bool { // the document follows the definition
			_, err := c.Kubectl(t.Context(), nil, "explain", crd.Spec.Names.Singular)
			return err == nil
		}, patience.Wait(), 50*time.Millisecond)
		for _, object := range objects {
			text := kubectl(t, c, "", "explain", object)
			for _, none := range []string{"<no description>", "<empty>"} {
				assert.NotContains(t, text, none, object)
			}
		}
	}
	require.NoError(t, ApplyCRDs(t.Context(), api), "the hook of an upgrade goes on from there")
}

// TestSeveralWritersOfOneObjectAreMergedAndToldOfTheirConflicts is about server-side
// apply.
func TestSeveralWritersOfOneObjectAreMergedAndToldOfTheirConflicts(t *testing.T) {
	c, api := server(t)
	require.NoError(t, ApplyCRDs(t.Context(), api))
	apply := func(who, fields string, more ...string) error {
		object := "{apiVersion: hotseat.dev/v1alpha1, kind: InferenceServerConfig, metadata: {name: chat, namespace: default}, " + fields + "}"
		_, err := c.Kubectl(t.Context(), strings.NewReader(object), append([]string{"apply", "--server-side", "--field-manager=" + who, "-f", "-"}, more...)...)
		return err
	}
	config := func() *v1alpha1.InferenceServerConfig {
		var now v1alpha1.InferenceServerConfig
		require.NoError(t, api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "chat"}, &now))
		return &now
	}
	env := func() string { return fmt.Sprint(config().Spec.ModelServerConfig.Env) }

	const alices = `spec: {launcherConfigName: vllm, modelServerConfig: {port: 8000, options: "--model org/chat", labels: {team: a}, env: [{name: A, value: "1"}]}}`
	require.NoError(t, apply("alice", alices))
	require.NoError(t, apply("bob", `spec: {modelServerConfig: {labels: {tier: b}, env: [{name: B, value: "2"}]}}`))
	assert.Equal(t, "[{A 1} {B 2}]", env(), "variables are merged by name")
	assert.Equal(t, map[string]v1alpha1.LabelValue{"team": "a", "tier": "b"}, config().Spec.ModelServerConfig.Labels)

	const bobs = `spec: {modelServerConfig: {port: 9000, labels: {tier: b}, env: [{name: A, value: "3"}]}}`
	err := apply("bob", bobs)
	require.ErrorContains(t, err, `conflicts with "alice"`)
	assert.ErrorContains(t, err, `.spec.modelServerConfig.env[name="A"].value`)
	assert.ErrorContains(t, err, `.spec.modelServerConfig.port`)
	assert.Equal(t, "[{A 1} {B 2}]", env(), "nothing is applied of it")
	require.NoError(t, apply("bob", bobs, "--force-conflicts"))
	assert.Equal(t, "[{A 3}]", env(), "what bob asks for no more is gone")
	assert.EqualValues(t, 9000, config().Spec.ModelServerConfig.Port)
	require.ErrorContains(t, apply("alice", alices), `conflicts with "bob"`)

	condition := func(kind string) string {
		return `status: {conditions: [{type: ` + kind + `, status: "True", reason: Tried, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`
	}
	generation := config().Generation
	require.NoError(t, apply("controller", condition("Accepted"), "--subresource=status"))
	require.NoError(t, apply("auditor", condition("Audited"), "--subresource=status"))
	require.Len(t, config().Status.Conditions, 2, "conditions are merged by type")
	assert.Equal(t, generation, config().Generation, "a status is no edit")
	require.NoError(t, apply("carol", `spec: {modelServerConfig: {annotations: {a: b}}}, status: {ready: 7}`))
	assert.Zero(t, config().Status.Ready, "who writes the object writes no status")
	assert.Equal(t, generation+1, config().Generation)
	assert.ErrorContains(t, apply("carol", `spec: {modelServerConfig: {prot: 8000}}`), "spec.modelServerConfig.prot")

	for _, name := range []string{"isc", "hotseat"} {
		assert.Contains(t, kubectl(t, c, "", "get", name), "chat", name)
	}
}
