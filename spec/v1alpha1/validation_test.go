package v1alpha1_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const crdFolder = "../../deploy/chart/crds"

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// crd is a CustomResourceDefinition as an API server holds it.
type crd struct {
	schema *schema.Structural
	plain  validation.SchemaValidator
	rules  *cel.Validator
}

func readCRDs(t *testing.T) map[string]crd {
	t.Helper()
	files, err := filepath.Glob(crdFolder + "/*.yaml")
	require.NoError(t, err)
	crds := map[string]crd{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		v1 := apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, yaml.UnmarshalStrict(text, &v1))
		apiextensionsv1.SetDefaults_CustomResourceDefinition(&v1)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&v1.Spec)
		internal := apiextensions.CustomResourceDefinition{}
		require.NoError(t, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&v1, &internal, nil))
		internal.Status.StoredVersions = []string{"v1alpha1"}
		require.Empty(t, crdvalidation.ValidateCustomResourceDefinition(t.Context(), &internal).ToAggregate(), file)

		props := internal.Spec.Validation
		if props == nil {
			props = internal.Spec.Versions[0].Schema
		}
		structural, err := schema.NewStructural(props.OpenAPIV3Schema)
		require.NoError(t, err)
		plain, _, err := validation.NewSchemaValidator(props.OpenAPIV3Schema)
		require.NoError(t, err)
		crds[v1.Spec.Names.Kind] = crd{structural, plain, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
	}
	require.Len(t, crds, 10)
	return crds
}

// admit does to an object what an API server does, with strict field
// validation, and returns what it says.
func (c crd) admit(object, old map[string]any) string {
	var said []string
	known := pruning.PruneWithOptions(object, c.schema, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, path := range known {
		said = append(said, `unknown field "`+path+`"`)
	}
	defaulting.Default(object, c.schema)
	var errs field.ErrorList
	if old == nil {
		errs = validation.ValidateCustomResource(nil, object, c.plain)
	} else {
		defaulting.Default(old, c.schema)
		errs = validation.ValidateCustomResourceUpdate(nil, object, old, c.plain)
	}
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.schema, object)...)
	if len(errs) == 0 {
		// An untyped nil stands for no old object.
		var before any
		if old != nil {
			before = old
		}
		errs, _ = c.rules.Validate(context.Background(), nil, c.schema, object, before, celconfig.RuntimeCELCostBudget)
	}
	for _, err := range errs {
		said = append(said, err.Error())
	}
	return strings.Join(said, "; ")
}

func TestTheAPIServerTakesAndRefusesWhatTheTableSays(t *testing.T) {
	crds := readCRDs(t)
	text, err := os.ReadFile("testdata/validation.yaml")
	require.NoError(t, err)
	var cases []struct {
		Name    string         `json:"name"`
		Object  map[string]any `json:"object"`
		Old     map[string]any `json:"old"`
		Message string         `json:"message"`
	}
	text, err = yaml.YAMLToJSON(text)
	require.NoError(t, err)
	require.NoError(t, json.UnmarshalCaseSensitivePreserveInts(text, &cases))
	for _, tt := range cases {
		t.Run(tt.Name, func(t *testing.T) {
			said := crds[tt.Object["kind"].(string)].admit(tt.Object, tt.Old)
			if tt.Message == "" {
				assert.Empty(t, said)
				return
			}
			assert.Contains(t, said, tt.Message)
		})
	}
}

// The limit of the annotation that kubectl apply writes is 256 KiB.
func TestEachDefinitionIsSmallEnoughToBeApplied(t *testing.T) {
	files, err := filepath.Glob(crdFolder + "/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		info, err := os.Stat(file)
		require.NoError(t, err)
		assert.Less(t, info.Size(), int64(64<<10), file)
	}
}
