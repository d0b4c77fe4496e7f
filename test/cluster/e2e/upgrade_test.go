//go:build cluster && upgrade

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// TestAnUpgradeFromAnEarlierCommitDisturbsNothingThatIsAwake installs that commit's
// chart with its images, which make test-upgrade has built, and upgrades to this one.
func TestAnUpgradeFromAnEarlierCommitDisturbsNothingThatIsAwake(t *testing.T) {
	before := os.Getenv("HOTSEAT_TEST_BEFORE")
	require.NotEmpty(t, before, "there is nothing to upgrade from: make test-upgrade")
	const tag = "before"
	require.NoError(t, laneOf(t).cluster.LoadProduct(t.Context(), filepath.Join(before, "bin"), tag))
	s := newBareSite(t)
	s.uninstalled("uninstall.deleteCRDs=true", "uninstall.engines=stop")
	require.NoError(t, s.installChart(t.Context(), filepath.Join(before, "deploy", "chart"), "image.tag="+tag))
	s.addPool(nil)
	s.allReady()
	s.deploy(server{app: "sleeper", node: 1, tag: tag}, 1)
	s.served("sleeper", 1)
	s.scale("sleeper", 0)
	s.gone("sleeper")
	talks := talker()
	talks.tag = tag
	s.deploy(talks, 1)
	pod := s.served("talker", 1)[0]
	answer := s.listen(&pod)
	launchers, records := s.poolPods(), s.records(s.poolPods()[cluster.NodeName(1)].Name)
	bound, unbound := launchers[cluster.NodeName(1)], launchers[cluster.NodeName(2)]
	for _, launcher := range launchers {
		require.True(t, strings.HasSuffix(launcher.Spec.InitContainers[0].Image, ":"+tag), "it is of the earlier commit")
	}

	require.NoError(t, s.install(t.Context()))
	s.eventually("the launcher without a requester is replaced", func() bool {
		now, ok := s.poolPods()[cluster.NodeName(2)]
		return ok && now.UID != unbound.UID && readyPod(&now)
	})
	_, err := s.cluster.Helm(t.Context(), "test", "hotseat", "--namespace", system, "--timeout", patience.Wait().String())
	require.NoError(t, err)
	answer.goesOn()
	assert.Equal(t, bound.UID, s.poolPods()[cluster.NodeName(1)].UID, "the one with a requester stays")
	assert.Equal(t, records, s.records(bound.Name))
	s.deploy(server{app: "elsewhere", node: 2}, 1)
	s.served("elsewhere", 1)
	s.answers("elsewhere")
	s.deploy(server{app: "beside", node: 1}, 1) // in a launcher of the earlier commit
	s.served("beside", 1)
	s.answers("beside")
	answer.goesOn()
	assert.Equal(t, pod.UID, s.served("talker", 1)[0].UID)

	s.scale("beside", 0)
	s.gone("beside")
	s.scale("talker", 0)
	s.gone("talker")
	s.eventually("it is replaced once nobody is bound to it", func() bool {
		now, ok := s.poolPods()[cluster.NodeName(1)]
		return ok && now.UID != bound.UID && readyPod(&now)
	})
	s.scale("talker", 1)
	s.served("talker", 1)
	s.answers("talker")
}
