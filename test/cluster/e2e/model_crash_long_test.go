//go:build cluster && clusterlong

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// threeWays is a Model whose first entry has no hardware, whose second one has a GPU, and which has a standby.
const threeWays = `
apiVersion: hotseat.dev/v1alpha1
kind: ResourceProfile
metadata: {name: e2e-rare}
spec:
  launcherConfigName: simulated
  limits: {nvidia.com/gpu: 1}
  nodeSelector: {example.com/gpu: rare}
---
apiVersion: hotseat.dev/v1alpha1
kind: Model
metadata: {name: NAME}
spec:
  url: hf://org/NAME
  scaleDownDelaySeconds: 2
specs:
- {name: rare, resourceProfile: e2e-rare, args: [--gpu-memory-utilization=0.4], unschedulableSeconds: 1}
- {name: a, resourceProfile: e2e-gpu, args: [--gpu-memory-utilization=0.4]}
- {name: standby, resourceProfile: e2e-processor, minReplicas: 1, targetRequests: 0}
`

func TestControllerKilledAfterARowOfAModelComesToTheSameEnd(t *testing.T) {
	plain := newPool(t, nil)
	plain.engineImage()
	plain.waitForLaunchers()
	s := plain.crashing()
	for i, row := range []string{"standby alone", "demand", "unschedulable too long", "backs off", "standby rests", "standby before the last goes", "last one stays"} {
		name := fmt.Sprintf("m%d", i)
		s.run(row)
		s.declare(strings.ReplaceAll(threeWays, "NAME", name))
		if row != "standby alone" {
			s.serves(name, "standby (1)")
			stop := s.chats(name, s.frontDoor(), 1)
			if row == "standby before the last goes" || row == "last one stays" {
				s.serves(name, "a (1)")
				onlyAnswers(t, stop(), 1)
				s.crashed(row, "")
			} else {
				s.crashed(row, "")
				s.serves(name, "a (1)")
				onlyAnswers(t, stop(), 1)
			}
			assert.Equal(t, "Unschedulable", s.failure(name, "rare").Reason, row)
		} else {
			s.crashed(row, "")
		}
		s.eventually("the standby alone is left after "+row, func() bool {
			return s.model(name).Status.Serving == "standby (1)" && len(s.modelPods(name)) == 1
		})
		status, text := s.chat(name)
		require.Equal(t, 200, status, text)
		s.kubectl("delete", "mdl/"+name)
		s.eventually("the Model is gone", func() bool { return len(s.modelPods(name)) == 0 })
	}
}

func TestControllerKilledInARaceComesToTheSameEnd(t *testing.T) {
	plain := newPool(t, nil)
	plain.waitForLaunchers()
	s := plain.crashing()
	// The winner is b, whose label comes after the first one is taken back, or a, whose label comes before.
	for i, c := range []struct{ row, winner, others string }{{"races", "b", "ac"}, {"race is over", "b", "ac"}, {"race is over", "a", "bc"}, {"less demand", "b", "ac"}} {
		row, name := c.row, fmt.Sprintf("g%d", i)
		s.run(map[string]string{"races": row, "race is over": row}[row])
		model := strings.NewReplacer("name: llama", "name: "+name, "org/llama", "org/"+name).Replace(group)
		if c.winner == "a" {
			model = strings.NewReplacer(", --sim-load-time=1m", "", "name: b, simultaneousScaleUpGroup: g, args: [", "name: b, simultaneousScaleUpGroup: g, args: [--sim-load-time=1m, ").Replace(model)
		}
		s.declare(model)
		s.awaitDoors(name)
		stop := s.chats(name, s.frontDoor(), 1)
		if row != "less demand" {
			s.crashed(row, "")
		}
		s.serves(name, c.winner+" (1)")
		s.eventually("the others are taken back", func() bool { return s.replicasOf(name+"-"+c.others[:1])+s.replicasOf(name+"-"+c.others[1:]) == 0 })
		if row == "less demand" {
			s.run(row)
		}
		onlyAnswers(t, stop(), 1)
		if row == "less demand" { // the next controller has heard all launchers when somebody asks again
			s.crashed(row, "wakes on free GPUs")
		}
		s.eventually("it goes to zero", func() bool { return len(s.modelPods(name)) == 0 })
		for _, entry := range []string{"a", "b", "c"} {
			assert.Nil(t, s.entry(name, entry).LastFailure, "%s: %s", row, entry)
		}
		if row == "less demand" { // its model sleeps then, and is asked for alone
			s.eventually("it sleeps", func() bool { return s.entry(name, c.winner).SleepsOn != "" })
			stop := s.chats(name, s.frontDoor(), 1)
			s.crashed("wakes on free GPUs", "")
			s.serves(name, c.winner+" (1)")
			onlyAnswers(t, stop(), 1)
		}
		s.kubectl("delete", "mdl/"+name)
		s.eventually("the Model is gone", func() bool { return s.isAbsent(name, &v1alpha1.Model{}) && len(s.modelPods(name)) == 0 })
	}
}

// waitForLaunchers waits until each node has a launcher that is ready.
func (s *site) waitForLaunchers() {
	s.t.Helper()
	s.eventually("each node has a launcher", func() bool {
		ready := 0
		for _, p := range s.launchers() {
			if readyPod(&p) {
				ready++
			}
		}
		return ready == s.cluster.Nodes
	})
}
