package manager

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestANamespaceSaysFromWhereItsEnginesHaveTheirModelsOrElseTheController(t *testing.T) {
	named := func(name, mode string) *corev1.Namespace {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if mode != "" {
			ns.Annotations = map[string]string{podmeta.AnnotationModelCache: mode, "other": "x"}
		}
		return ns
	}
	api := fake.NewClientBuilder().WithObjects(named("silent", ""), named("requires", "require"), named("usual", "auto"), named("wrong", "of")).Build()
	for name, c := range map[string]struct{ namespace, only, usual, mode, wrong string }{
		"the controller's flag":           {namespace: "silent", usual: "off", mode: "off"},
		"which is auto":                   {namespace: "silent", usual: "auto"},
		"the namespace":                   {namespace: "requires", usual: "off", mode: "require"},
		"the namespace, as usual":         {namespace: "usual", usual: "off", mode: "auto"},
		"a namespace that says no word":   {namespace: "wrong", usual: "off", wrong: `annotation hotseat.dev/model-cache of namespace wrong: "of" is none of auto`},
		"a namespace that is not there":   {namespace: "young", usual: "off", mode: "off"},
		"namespaces that are not read":    {namespace: "requires", only: "requires", usual: "off", mode: "off"},
		"nobody says anything, nor reads": {namespace: "requires", only: "requires"},
	} {
		mode, wrong := modelCacheOf(api, c.only, c.usual)(t.Context(), c.namespace)
		assert.Equal(t, c.mode, mode, name)
		if c.wrong == "" {
			assert.Empty(t, wrong, name)
		} else if assert.Len(t, wrong, 1, name) {
			assert.Contains(t, wrong[0].String(), c.wrong, name)
		}
	}
}

func TestOfNamespacesIsCachedFromWhereTheirModelsComeAlone(t *testing.T) {
	ns := aNamespace()
	ns.Name, ns.Labels, ns.Annotations = "n", map[string]string{"a": "b"}, map[string]string{podmeta.AnnotationModelCache: "off", "other": "x"}
	got, err := slim(ns)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{podmeta.AnnotationModelCache: "off"}, got.(*metav1.PartialObjectMetadata).Annotations)
	assert.Empty(t, got.(*metav1.PartialObjectMetadata).Labels)
}
