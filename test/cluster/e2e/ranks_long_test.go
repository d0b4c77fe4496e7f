//go:build cluster && clusterlong

package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// ranksOfBig returns the requesters of the example that there are.
func (s *site) ranksOfBig() []corev1.Pod {
	s.t.Helper()
	var pods corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &pods, client.InNamespace(s.ns), client.MatchingLabels{podmeta.LabelServing: "big"}))
	return pods.Items
}

// inPhase reports whether a launcher has a swap that waits in a phase.
func (s *site) inPhase(phase string) bool {
	s.t.Helper()
	for _, pod := range s.launcherPods("simulated") {
		if !readyPod(&pod) {
			continue
		}
		list, err := s.launcher(pod.Name).Swaps(s.t.Context())
		require.NoError(s.t, err)
		if slices.ContainsFunc(list.Swaps, func(swap launcherapi.Swap) bool { return swap.Phase == phase }) {
			return true
		}
	}
	return false
}

// removeBig deletes the example, and its instances if they are to be started anew.
func (s *site) removeBig(anew bool) {
	s.t.Helper()
	s.kubectl("delete", "ms/big", "--timeout="+patience.Wait().String())
	s.eventually("the requesters are gone", func() bool { return len(s.ranksOfBig()) == 0 })
	for _, pod := range s.launcherPods("simulated") {
		list, err := s.launcher(pod.Name).List(s.t.Context())
		require.NoError(s.t, err)
		for _, i := range list.Instances {
			assert.Equal(s.t, "sleeping", i.State)
			if anew {
				_, err := s.launcher(pod.Name).Delete(s.t.Context(), i.InstanceID)
				require.NoError(s.t, err)
			}
		}
	}
}

// TestServerOfTwoRanksStartsThoughItsControllerIsKilled kills the controller when the start has come
// to each of its points.
func TestServerOfTwoRanksStartsThoughItsControllerIsKilled(t *testing.T) {
	s := newPool(t, nil)
	s.apply(exampleRanks)
	s.serverOfBig()
	for _, point := range []struct {
		name string
		anew bool // the ranks are started, and not woken
		so   func() bool
	}{
		{"a rank was told of the start", true, func() bool {
			return slices.ContainsFunc(s.ranksOfBig(), func(p corev1.Pod) bool { return p.Annotations[podmeta.AnnotationServer] != "" })
		}},
		{"a rank is prepared", true, func() bool { return s.inPhase(launcherapi.PhaseGo) }},
		{"a rank is healthy", true, func() bool { return s.inPhase(launcherapi.PhaseCommit) }},
		{"a rank that sleeps is prepared", false, func() bool { return s.inPhase(launcherapi.PhaseGo) }},
	} {
		s.removeBig(point.anew)
		s.apply(exampleRanks)
		reached := false
		for deadline := time.Now().Add(patience.Wait()); !reached && time.Now().Before(deadline); {
			reached = point.so()
		}
		t.Logf("%s: reached %t", point.name, reached) // the moment may pass between two looks: the kill comes a little later then
		s.killController(s.controller())
		s.serverOfBig()
	}
}

func TestServerOfTwoRanksLosesNothingWithALauncher(t *testing.T) {
	s := newPool(t, nil)
	s.twoHosts()
	entry, worker := s.serverOfBig()
	uids := func() (uids []string) {
		for _, pod := range s.ranksOfBig() {
			uids = append(uids, string(pod.UID))
		}
		return uids
	}
	before := uids()
	launcher, _ := s.boundTo(bigWorker)
	s.killProcess(2, cluster.Process{CommandLine: "launcher serve ", Variable: "HOSTNAME=" + launcher.Name})
	s.eventually("the launcher answers again", func() bool {
		_, err := s.launcher(launcher.Name).Get(t.Context(), worker.InstanceID)
		return err == nil
	})
	again, other := s.serverOfBig()
	assert.Equal(t, []int{entry.PID, worker.PID}, []int{again.PID, other.PID})
	assert.ElementsMatch(t, before, uids())

	// The Pod of that launcher is deleted: its requester goes with it, another one takes its place, and the
	// server starts again. The requester of the other rank stays.
	stays, goes := s.uidOf(bigEntry), s.uidOf(bigWorker)
	s.delete(launcher.Name)
	s.eventually("the worker has another requester", func() bool { uid := s.uidOf(bigWorker); return uid != "" && uid != goes })
	anew, _ := s.serverOfBig()
	assert.NotEqual(t, again.Rank.Group, anew.Rank.Group, "another start")
	assert.Equal(t, stays, s.uidOf(bigEntry))
}
