package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Guard refuses the deletion of ClusterModelCaches that are in use.
type Guard struct {
	// Uses returns who uses the model of a cache now, in a text for each place. Unknown uses
	// do not count.
	Uses func(context.Context, *v1alpha1.ClusterModelCache) ([]string, error)
}

// maxUses bounds the places that a refusal lists.
const maxUses = 8

// Handle implements [admission.Handler]. It allows the deletion when it cannot find out the uses:
// the finalizer keeps an object that is in use.
func (g *Guard) Handle(ctx context.Context, request admission.Request) admission.Response {
	var cache v1alpha1.ClusterModelCache
	// A request to delete a collection has no object name, so Handle reads the object.
	if err := json.Unmarshal(request.OldObject.Raw, &cache); err != nil {
		return unknown(fmt.Errorf("cannot read the object: %w", err))
	}
	if !cache.DeletionTimestamp.IsZero() {
		return admission.Allowed("it is being deleted already")
	}
	uses, err := g.Uses(ctx, &cache)
	switch {
	case err != nil:
		return unknown(err)
	case len(uses) == 0:
		return admission.Allowed("")
	}
	if more := len(uses) - maxUses; more > 0 {
		uses = append(uses[:maxUses:maxUses], fmt.Sprintf("and at %d more places", more))
	}
	return admission.Denied(fmt.Sprintf("ClusterModelCache %s is in use: %s. Scale down the requesters of the model, "+
		"then delete it again; sleeping instances end with their launcher's Pod", cache.Name, strings.Join(uses, "; ")))
}

// unknown allows a deletion, and warns that the uses were not checked.
func unknown(err error) admission.Response {
	return admission.Allowed("").WithWarnings(fmt.Sprintf("cannot check whether the model is in use; the object stays until the use ends: %v", err))
}
