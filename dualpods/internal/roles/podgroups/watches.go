package podgroups

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	scheduling "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	Lacking    bool // it has none of Volcano
	Subgroups  bool // those of Volcano have the field subGroupPolicy
	Kubernetes bool // it has those of Kubernetes
}

// Definitions asks what PodGroups a cluster has. It is safe for concurrent use.
type Definitions func() (Definition, error)

// OfKubernetes reports whether the cluster has PodGroups of Kubernetes.
func (d Definitions) OfKubernetes() (bool, error) {
	is, err := d()
	return is.Kubernetes, err
}

// definitionAge is for how long what the API server has said of PodGroups counts.
const definitionAge = 30 * time.Second

// ReadDefinition returns a function that asks the API server what PodGroups it has, as every client
// may. An API server has those of Kubernetes only while its feature gate GenericWorkload is on.
func ReadDefinition(api discovery.OpenAPIV3SchemaInterface, now func() time.Time) Definitions {
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
	hasVolcano, fields, err := fieldsOf(paths, volcano.SchemeGroupVersion)
	if err != nil {
		return Definition{}, err
	}
	has, _, err := fieldsOf(paths, scheduling.SchemeGroupVersion)
	_, subgroups := fields["subGroupPolicy"]
	return Definition{Lacking: !hasVolcano, Subgroups: subgroups, Kubernetes: has}, err
}

// fieldsOf returns the fields of the spec of the kind PodGroup of a group and version, and whether
// there is that kind.
func fieldsOf(paths map[string]openapi.GroupVersion, version schema.GroupVersion) (has bool, fields map[string]any, err error) {
	path, has := paths["apis/"+version.String()]
	if !has {
		return false, nil, nil
	}
	raw, err := path.Schema(runtime.ContentTypeJSON)
	if err != nil {
		return false, nil, err
	}
	var read document
	if err := json.Unmarshal(raw, &read); err != nil {
		return false, nil, err
	}
	kind := metav1.GroupVersionKind(version.WithKind("PodGroup"))
	for _, s := range read.Components.Schemas {
		if slices.Contains(s.Kinds, kind) {
			return true, s.Properties.Spec.Properties, nil
		}
	}
	return false, nil, nil
}
