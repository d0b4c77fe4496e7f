//go:build cluster && clusterlong

package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/patience"
)

func TestARequesterThatAnybodyCouldGiveOrdersToIsRefusedWhereThatIsAskedFor(t *testing.T) {
	s := newPool(t, nil)
	s.allReady()
	s.deploy(server{app: "before", node: 1}, 1)
	s.served("before", 1)
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 2*patience.Wait())
		defer stop()
		assert.NoError(t, s.install(ctx))
	})
	require.NoError(t, s.install(t.Context(), "trust.requireRequesters=true"))
	s.deploy(server{app: "open", node: 2}, 1)
	s.waitsFor("open", "volumes: [{name: hotseat-ca, configMap: {name: hotseat-ca}}]")
	s.eventually("an Event tells", func() bool { return s.event(s.pods("open")[0].UID, "hotseat-ca at /etc/hotseat") })
	s.answers("before") // one that is bound is served until it goes
	s.scale("before", 0)
	s.gone("before")
	s.apply("examples/dual-pods/requesters.yaml")
	s.served("model-a", 1)
	s.answers("model-a")
}
