//go:build cluster && clusterlong

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/patience"
)

// TestDeploymentThatNoVersionFitsIsToldInTwoMinutes is about a file:// model, of which each
// node has a version of its own.
func TestDeploymentThatNoVersionFitsIsToldInTwoMinutes(t *testing.T) {
	s := newExampleCache(t)
	s.apply("examples/model-volume/engine.yaml")
	_, err := s.cluster.Kubectl(t.Context(), nil, "-n", s.ns, "rollout", "status", "deployment/own-engine", "--timeout="+patience.LongWait().String())
	require.ErrorContains(t, err, "exceeded its progress deadline")
	assert.NotEmpty(t, s.kubectl("get", "events", "--field-selector", "reason=SeveralVersions", "-o", "name"))
	s.kubectl("delete", "deployment/own-engine")
	s.gone("own-engine")
	s.removeExampleCache()
}
