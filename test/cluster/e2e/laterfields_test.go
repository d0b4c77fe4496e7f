//go:build cluster

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// TestAFieldThatTheControllerDoesNotKnowIsKeptWhenItWrites gives the definition of
// ClusterModelCaches a field that a later version may have. The controller, which is of
// this version, writes to such an object: its finalizer, and its status.
func TestAFieldThatTheControllerDoesNotKnowIsKeptWhenItWrites(t *testing.T) {
	s := newBareSite(t)
	const crd, field = "clustermodelcaches.hotseat.dev", "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/later"
	s.kubectl("patch", "crd", crd, "--type=json", `-p=[{"op":"add","path":"`+field+`","value":{"type":"string"}}]`)
	t.Cleanup(func() {
		_, err := s.cluster.Kubectl(context.Background(), nil, "patch", "crd", crd, "--type=json", `-p=[{"op":"remove","path":"`+field+`"}]`)
		assert.NoError(t, err)
	})
	t.Cleanup(func() {
		_, err := s.cluster.Kubectl(context.Background(), nil, "delete", "--timeout="+patience.Wait().String(), "--ignore-not-found", "cmc/later")
		assert.NoError(t, err)
	})
	object := func(retention string) *strings.Reader {
		return strings.NewReader(fmt.Sprintf(`{"apiVersion":"hotseat.dev/v1alpha1","kind":"ClusterModelCache","metadata":{"name":"later"},`+
			`"spec":{"later":"kept","source":{"uri":"hf://org/later"},"nodeGroups":[%q],"retention":%q}}`, s.ns, retention))
	}
	s.eventually("the API server takes the field", func() bool { // it has the changed definition in a moment
		_, err := s.cluster.Kubectl(t.Context(), object("Keep"), "create", "--dry-run=server", "--validate=strict", "-f", "-")
		return err == nil
	})
	_, err := s.cluster.Kubectl(t.Context(), object("Keep"), "create", "-f", "-")
	require.NoError(t, err)
	written := func(generation int64) {
		t.Helper()
		s.eventually("the controller has written", func() bool {
			var c v1alpha1.ClusterModelCache
			require.NoError(t, s.api.Get(t.Context(), client.ObjectKey{Name: "later"}, &c))
			return c.Generation == generation && c.Status.ObservedGeneration == generation && slices.Contains(c.Finalizers, podmeta.FinalizerModelCache)
		})
		assert.Equal(t, "kept", s.kubectl("get", "cmc/later", "-o", "jsonpath={.spec.later}"))
	}
	written(1)
	_, err = s.cluster.Kubectl(t.Context(), object("LRU"), "replace", "-f", "-")
	require.NoError(t, err)
	written(2)
}
