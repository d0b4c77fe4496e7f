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
	// Uses says who uses the model of a cache now, and where, one text for each place.
	// What is not known is no use.
	Uses func(context.Context, *v1alpha1.ClusterModelCache) ([]string, error)
}

// Bounds of a refusal.
const maxUses = 8

// Handle implements [admission.Handler]. Whoever cannot tell lets the deletion pass: the
// finalizer of the object guards what is in use.
func (g *Guard) Handle(ctx context.Context, request admission.Request) admission.Response {
	var cache v1alpha1.ClusterModelCache
	// The request for a deletion of many objects at once names none of them.
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

// unknown lets a deletion pass, and says that nobody looked.
func unknown(err error) admission.Response {
	return admission.Allowed("").WithWarnings(fmt.Sprintf("cannot check whether the model is in use; the object stays until the use ends: %v", err))
}
