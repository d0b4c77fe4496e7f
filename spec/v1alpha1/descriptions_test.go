package v1alpha1_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// TestKubectlExplainHasWordsForEachField walks through the definitions: kubectl explain says
// <no description> of a field that has none.
func TestKubectlExplainHasWordsForEachField(t *testing.T) {
	files, err := filepath.Glob(crdFolder + "/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var crd apiextensionsv1.CustomResourceDefinition
		require.NoError(t, yaml.UnmarshalStrict(text, &crd))
		for _, version := range crd.Spec.Versions {
			assertDescribed(t, crd.Spec.Names.Singular, version.Schema.OpenAPIV3Schema)
		}
	}
}

func assertDescribed(t *testing.T, path string, schema *apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	for name, property := range schema.Properties {
		at := path + "." + name
		if at != path+".metadata" {
			assert.NotEmpty(t, property.Description, at)
		}
		assertDescribed(t, at, &property)
	}
	if schema.Items != nil {
		assertDescribed(t, path+"[]", schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		assertDescribed(t, path+"{}", schema.AdditionalProperties.Schema)
	}
}
