//go:build cluster && clusterlong

package e2e

import (
	"testing"
)

func TestARequesterThatAnybodyCouldGiveOrdersToIsRefusedWhereThatIsAskedFor(t *testing.T) {
	s := newPool(t, nil)
	s.allReady()
	s.withoutPolicyForRequesters() // which adds the mount
	s.deploy(server{app: "before", node: 1}, 1)
	s.served("before", 1)
	s.withoutPolicyForRequesters("trust.requireRequesters=true")
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
