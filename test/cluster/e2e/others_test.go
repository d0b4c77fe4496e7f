//go:build cluster && (clusterlong || volcano)

package e2e

import (
	"context"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/patience"
)

// installOthersChart installs a chart of others with some values, in a namespace of its own, while
// the test runs.
func (s *site) installOthersChart(name, chart string, values ...string) {
	s.t.Helper()
	namespace := name + "-system"
	s.t.Cleanup(func() { s.deleteAll("namespace", namespace) })
	s.t.Cleanup(func() {
		_, err := s.cluster.Helm(context.Background(), "uninstall", name, "--namespace", namespace, "--ignore-not-found", "--wait", "--timeout", patience.Wait().String())
		assert.NoError(s.t, err)
	})
	args := []string{"install", name, chart, "--namespace", namespace, "--create-namespace", "--wait", "--timeout", patience.Wait().String()}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	_, err := s.cluster.Helm(s.t.Context(), args...)
	require.NoError(s.t, err)
}

// deleteAll deletes what kubectl names so, at the end of a test.
func (s *site) deleteAll(args ...string) {
	ctx, stop := context.WithTimeout(context.Background(), patience.Wait())
	defer stop()
	_, err := s.cluster.Kubectl(ctx, nil, append([]string{"delete", "--ignore-not-found"}, args...)...)
	assert.NoError(s.t, err)
}
