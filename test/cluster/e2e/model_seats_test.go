//go:build cluster

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// seatPool returns a SeatPool.
func (s *site) seatPool(name string) *v1alpha1.SeatPool {
	s.t.Helper()
	var pool v1alpha1.SeatPool
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &pool))
	return &pool
}

// idleSeats waits until a pool has so many seats, none of which has a model, and all of which can take one.
func (s *site) idleSeats(name string, n int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("SeatPool %s has %d idle seats", name, n), func() bool {
		pool := s.seatPool(name)
		return isTrue(pool.Status.Conditions, v1alpha1.ConditionAvailable) && int(pool.Status.Seats.Idle) == n && int(pool.Status.Seats.Total) == n
	})
}

// isTrue reports whether a condition is true.
func isTrue(all []metav1.Condition, kind string) bool {
	return slices.ContainsFunc(all, func(c metav1.Condition) bool { return c.Type == kind && c.Status == metav1.ConditionTrue })
}

// seats returns the Pods of a pool, by name, that are not being deleted.
func (s *site) seats(pool string) map[string]*corev1.Pod {
	s.t.Helper()
	var all corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &all, client.InNamespace(s.ns), client.MatchingLabels{podmeta.LabelSeat: pool}))
	byName := map[string]*corev1.Pod{}
	for i := range all.Items {
		if pod := &all.Items[i]; pod.DeletionTimestamp.IsZero() {
			byName[pod.Name] = pod
		}
	}
	return byName
}

// podUIDs returns all Pods of the test's namespace, with their UIDs.
func (s *site) podUIDs() (all []string) {
	s.t.Helper()
	var list corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &list, client.InNamespace(s.ns)))
	for _, p := range list.Items {
		all = append(all, p.Name+" "+string(p.UID))
	}
	slices.Sort(all)
	return all
}

// chatOK asks a Model, which has to answer.
func (s *site) chatOK(model string) {
	s.t.Helper()
	status, text := s.chat(model)
	require.Equal(s.t, http.StatusOK, status, text)
	assert.Contains(s.t, text, `"model":"`+model+`"`)
}

func TestSeatAnswersForAModelAtZero(t *testing.T) {
	s := newPool(t, nil)
	require.NoError(t, s.applyModel(t.Context(), "examples/models/seats.yaml"))
	s.idleSeats("seats", 2)
	for name, pod := range s.seats("seats") {
		assert.False(t, readyPod(pod), "seat %s has no model", name)
	}

	s.chatOK("model-a")
	s.serves("model-a", "seats (1)")
	s.eventually("the seat is ready", func() bool {
		pods := s.modelPods("model-a")
		return len(pods) == 1 && readyPod(&pods[0]) && pods[0].Labels[podmeta.LabelServes] == "model-a"
	})
	s.idleSeats("seats", 2) // after scaleDownDelaySeconds
	s.eventually("it sleeps", func() bool { return s.model("model-a").Status.SleepsOn != "" })
	assert.Empty(t, s.modelPods("model-a"), "the seat has no model any more")

	pods, instances := s.podUIDs(), s.instancesOf("org/model-a")
	require.Len(t, instances, 1)
	s.chatOK("model-a")
	assert.Equal(t, pods, s.podUIDs(), "no Pod was made")
	assert.Equal(t, instances, s.instancesOf("org/model-a"), "the sleeper has woken")
}

func TestThreeModelsTakeTurnsOnTwoSeats(t *testing.T) {
	s := newPool(t, nil)
	require.NoError(t, s.applyModel(t.Context(), "examples/models/seats.yaml"))
	s.idleSeats("seats", 2)
	models := []string{"model-a", "model-b", "model-c"}
	all := func() (all []string) {
		for _, model := range models {
			all = append(all, s.instancesOf("org/"+model)...)
		}
		return all
	}
	var first []string
	for turn := range 50 {
		s.chatOK(models[turn%len(models)])
		if turn == len(models)-1 {
			first = all()
		}
	}
	require.Len(t, first, len(models), "one instance of each")
	assert.Equal(t, first, all(), "after the first round each model woke where it slept")
}
