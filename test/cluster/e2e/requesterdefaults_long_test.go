//go:build cluster && clusterlong

package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/patience"
)

// TestWithoutThePolicyTheCommunitysRequesterIsServed has the controller add the finalizer, as on
// earlier releases of Kubernetes.
func TestWithoutThePolicyTheCommunitysRequesterIsServed(t *testing.T) {
	s := newPool(t, nil)
	s.needPolicyForRequesters()
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), patience.Wait())
		defer stop()
		assert.NoError(t, s.install(ctx), "the policy is there again")
	})
	require.NoError(t, s.install(t.Context(), "requesterDefaults.enabled=false"))
	s.policyForRequesters(false)
	pod := s.servesTheCommunity(t)
	assert.True(t, podmeta.Held(pod), "by the controller")
	read, _ := podmeta.ReadRequester(pod)
	assert.False(t, read.TLS)
}
