package podgroups

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"
	ctrl "sigs.k8s.io/controller-runtime"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// SetupWithManager reconciles a ModelServing when it or its status changes.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("podgroups").For(&v1alpha1.ModelServing{}).Complete(c)
}

// Definition says what PodGroups a cluster has.
type Definition struct {
	Lacking   bool // it has none
	Subgroups bool // they have the field subGroupPolicy
}

// definitionAge is for how long what the API server has said of PodGroups counts.
const definitionAge = 30 * time.Second

// ReadDefinition returns a function that asks the API server what PodGroups it has, as every client
// may. The function is safe for concurrent use.
func ReadDefinition(api discovery.OpenAPIV3SchemaInterface, now func() time.Time) func() (Definition, error) {
	var mu sync.Mutex
	var last Definition
	var since time.Time
	return func() (Definition, error) {
		mu.Lock()
		defer mu.Unlock()
		if age := now().Sub(since); age >= 0 && age < definitionAge {
			return last, nil
		}
		is, err := readDefinition(api.OpenAPIV3())
		if err != nil {
			return is, fmt.Errorf("cannot ask the API server for the schema of PodGroups: %w", err)
		}
		last, since = is, now()
		return is, nil
	}
}

// document is what this package reads of an OpenAPI document.
type document struct {
	Components struct {
		Schemas map[string]struct {
			Kinds      []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
			Properties struct {
				Spec struct {
					Properties map[string]any `json:"properties"`
				} `json:"spec"`
			} `json:"properties"`
		} `json:"schemas"`
	} `json:"components"`
}

func readDefinition(api openapi.Client) (Definition, error) {
	paths, err := api.Paths()
	if err != nil {
		return Definition{}, err
	}
	path, has := paths["apis/"+volcano.SchemeGroupVersion.String()]
	if !has {
		return Definition{Lacking: true}, nil
	}
	raw, err := path.Schema(runtime.ContentTypeJSON)
	if err != nil {
		return Definition{}, err
	}
	var read document
	if err := json.Unmarshal(raw, &read); err != nil {
		return Definition{}, err
	}
	kind := metav1.GroupVersionKind(volcano.SchemeGroupVersion.WithKind("PodGroup"))
	for _, schema := range read.Components.Schemas {
		if slices.Contains(schema.Kinds, kind) {
			_, subgroups := schema.Properties.Spec.Properties["subGroupPolicy"]
			return Definition{Subgroups: subgroups}, nil
		}
	}
	return Definition{Lacking: true}, nil
}
