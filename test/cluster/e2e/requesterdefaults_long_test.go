//go:build cluster && clusterlong

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/spec/podmeta"
)

// TestWithoutThePolicyTheCommunitysRequesterIsServed has the controller add the finalizer, as on
// earlier releases of Kubernetes.
func TestWithoutThePolicyTheCommunitysRequesterIsServed(t *testing.T) {
	s := newPool(t, nil)
	s.needPolicyForRequesters()
	s.withoutPolicyForRequesters()
	pod := s.servesTheCommunity(t)
	assert.True(t, podmeta.Held(pod), "by the controller")
	read, _ := podmeta.ReadRequester(pod)
	assert.False(t, read.TLS)
}
