//go:build cluster && clusterlong

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// The times of the SeatPools of these tests.
const (
	testResidency = 2 * time.Second
	testDrain     = 3 * time.Second
	testTakeover  = 5 * time.Second // in which a seat's last connections end, a model sleeps, and the other one wakes or starts, on two busy processors
)

// declareSeats makes a SeatPool, and Models of these names with seats of it. more adds to each Model's spec.
func (s *site) declareSeats(replicas int, more string, models ...string) {
	s.t.Helper()
	text := fmt.Sprintf("\napiVersion: hotseat.dev/v1alpha1\nkind: SeatPool\nmetadata: {name: pool}\nspec: {replicas: %d, launcherConfigName: simulated, minResidencySeconds: %.0f, drainSeconds: %.0f}\n",
		replicas, testResidency.Seconds(), testDrain.Seconds())
	for _, model := range models {
		text += fmt.Sprintf("---\napiVersion: hotseat.dev/v1alpha1\nkind: Model\nmetadata: {name: %[1]s}\nspec: {url: 'hf://org/%[1]s', args: [--gpu-memory-utilization=0.4, --sim-token-time=50ms, --sim-tokens=4000]%[2]s}\nspecs: [{name: seats, seatPool: pool}]\n", model, more)
	}
	s.declare(text)
	s.idleSeats("pool", replicas)
	for _, model := range models {
		s.awaitDoors(model)
	}
}

// seatOf returns the seat of a Model, which has one.
func (s *site) seatOf(model string) string {
	s.t.Helper()
	var has []string
	for name, pod := range s.seats("pool") {
		if pod.Labels[podmeta.LabelModel] == model {
			has = append(has, name)
		}
	}
	require.Len(s.t, has, 1, model)
	return has[0]
}

func TestWaitingModelGetsABusySeatAfterItsDrain(t *testing.T) {
	s := newPool(t, nil)
	s.declareSeats(2, "", "a", "b", "c")
	s.kubectl("patch", "mdl/a", "--type=merge", "-p", `{"spec": {"minReplicas": 1}}`)
	s.serves("a", "seats (1)")
	endA := s.doorStream(s.frontDoor(), "a", 200)
	endB := s.doorStream(s.frontDoor(), "b", 4000)
	kept, began := s.seatOf("a"), time.Now()
	s.chatOK("c")
	took := time.Since(began)
	t.Logf("c has waited for %s", took)
	assert.Greater(t, took, testDrain, "the requests of b have had their time")
	assert.Less(t, took, testResidency+testDrain+testTakeover)
	got, why := endB()
	assert.NotEmpty(t, why, "b was cut after %d tokens", got)
	assert.Greater(t, got, int(testDrain/(100*time.Millisecond)))
	got, why = endA()
	assert.Equal(t, []any{200, ""}, []any{got, why}, "a keeps its minReplicas")
	assert.Equal(t, kept, s.seatOf("a"))
	assert.NotEqual(t, kept, s.seatOf("c"))
}

func TestPoolRefillsWhenASeatIsGone(t *testing.T) {
	s := newPool(t, nil)
	s.declareSeats(2, "", "a")
	s.chatOK("a")
	was := s.seats("pool")
	s.kubectl("delete", "pod", s.seatOf("a"), "--wait=false")
	s.chatOK("a")
	s.eventually("the pool has two seats again", func() bool {
		pool := s.seatPool("pool")
		return len(s.seats("pool")) == 2 && pool.Status.Seats.Idle == 1 && pool.Status.Seats.Taken == 1
	})
	s.serves("a", "seats (1)")

	launcher := podmeta.ReadStatus(s.seats("pool")[s.seatOf("a")]).Launcher
	s.kubectl("delete", "pod", launcher, "--wait=false", "--grace-period=0", "--force")
	s.eventually("the seat of the launcher is gone", func() bool {
		for _, pod := range s.seats("pool") {
			if podmeta.ReadStatus(pod).Launcher == launcher && pod.Labels[podmeta.LabelModel] == "a" {
				return false
			}
		}
		return true
	})
	s.chatOK("a")
	s.eventually("the pool has two seats that run", func() bool {
		pool := s.seatPool("pool")
		return len(s.seats("pool")) == 2 && pool.Status.Seats.Taken == 1 && isTrue(pool.Status.Conditions, v1alpha1.ConditionAvailable)
	})
	assert.NotEqual(t, was, s.seats("pool"))
}

func TestControllerKilledAtASeatComesToTheSameEnd(t *testing.T) {
	plain := newPool(t, nil)
	plain.waitForLaunchers()
	s := plain.crashing()
	s.run("")
	s.declareSeats(1, "", "a", "b")
	for _, row := range []string{"free seat", "not wanted", "sleeps behind it", "idle model", "busy model"} {
		for _, at := range []string{"before seat: " + row, "seat: " + row} {
			s.kubectl("patch", "mdl/a", "mdl/b", "--type=merge", "-p", `{"spec": {"scaleDownDelaySeconds": 1}}`)
			s.idleSeats("pool", 1)
			var end func() (int, string)
			asked := "a"
			switch row {
			case "idle model", "busy model":
				s.kubectl("patch", "mdl/a", "mdl/b", "--type=merge", "-p", `{"spec": {"scaleDownDelaySeconds": 300}}`)
				s.chatOK("a")
				s.forgetSleepers("b") // else its seat is the one behind which it sleeps
				if asked = "b"; row == "busy model" {
					end = s.doorStream(s.frontDoor(), "a", 4000)
				}
			case "not wanted":
				s.chatOK("a")
			case "free seat":
				s.forgetSleepers("a")
			}
			s.run(at)
			if row != "not wanted" {
				stop := s.chats(asked, s.frontDoor(), 1)
				s.crashed(at, "")
				s.serves(asked, "seats (1)")
				onlyAnswers(t, stop(), 1)
			} else {
				s.crashed(at, "")
			}
			if end != nil {
				_, _ = end()
			}
			of := podmeta.Assignment{}
			for _, pod := range s.seats("pool") {
				of = podmeta.ReadAssignment(pod)
				assert.Equal(t, of.Model, pod.Labels[podmeta.LabelModel], "%s: all or nothing", at)
				assert.Equal(t, of.Config, pod.Annotations[podmeta.AnnotationInferenceServerConfig], at)
			}
			if row != "not wanted" {
				assert.Equal(t, asked, of.Model, at)
			}
		}
	}
	s.kubectl("patch", "mdl/a", "mdl/b", "--type=merge", "-p", `{"spec": {"scaleDownDelaySeconds": 1}}`)
	s.idleSeats("pool", 1)
}

// forgetSleepers deletes the instances of a model.
func (s *site) forgetSleepers(model string) {
	s.t.Helper()
	for _, pod := range s.launchers() {
		list, err := s.launcher(pod.Name).List(s.t.Context())
		require.NoError(s.t, err)
		for _, i := range list.Instances {
			if i.Model != "org/"+model {
				continue
			}
			_, err := s.launcher(pod.Name).Delete(s.t.Context(), i.InstanceID)
			require.NoError(s.t, err)
		}
	}
}

func TestEntryWithPodsTakesWhatSeatsCannot(t *testing.T) {
	s := newPool(t, nil)
	s.declareSeats(1, "", "holder")
	s.kubectl("patch", "mdl/holder", "--type=merge", "-p", `{"spec": {"minReplicas": 1}}`)
	s.serves("holder", "seats (1)")
	s.declare("\napiVersion: hotseat.dev/v1alpha1\nkind: Model\nmetadata: {name: both}\nspec: {url: 'hf://org/both', args: [--gpu-memory-utilization=0.4, --sim-token-time=50ms], scaleDownDelaySeconds: 2, targetRequests: 2}\nspecs: [{name: seats, seatPool: pool, maxReplicas: 1, unschedulableSeconds: 1}, {name: pods, resourceProfile: e2e-gpu}]\n")
	s.awaitDoors("both")
	stop := s.chats("both", s.frontDoor(), 1)
	s.serves("both", "pods (1)")
	assert.Contains(t, s.failure("both", "seats").Message, "SeatPool pool has no seat for it")
	s.kubectl("delete", "mdl/holder")
	s.serves("both", "seats (1)") // after the back-off
	s.eventually("its Pods go", func() bool { return s.replicasOf("both-pods") == 0 })

	more := s.chats("both", s.frontDoor(), 3) // four requests at a time: two more than the seat is to have
	s.serves("both", "seats (1), pods (1)")
	onlyAnswers(t, more(), 10)
	s.eventually("its Pods go with the load", func() bool { return s.replicasOf("both-pods") == 0 })
	s.serves("both", "seats (1)")
	onlyAnswers(t, stop(), 20)
}

// TestTenModelsTakeTurnsOnThreeSeats takes a minute, or as long as SEATS_FOR says, such as 5m.
func TestTenModelsTakeTurnsOnThreeSeats(t *testing.T) {
	lasts := time.Minute
	if text := os.Getenv("SEATS_FOR"); text != "" {
		var err error
		lasts, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	s := newPool(t, nil)
	var models []string
	for n := range 10 {
		models = append(models, fmt.Sprintf("m%d", n))
	}
	s.declareSeats(3, "", models...)
	swaps, stop := s.swapsOf("pool")
	const seats = 3
	turns := (len(models) + seats - 1) / seats
	bound := time.Duration(turns) * (testResidency + testDrain + testTakeover)
	var mu sync.Mutex
	var running sync.WaitGroup
	answers, longest := map[string]int{}, map[string]time.Duration{}
	for _, model := range models {
		running.Go(func() {
			for began := time.Now(); time.Since(began) < lasts; {
				asked := time.Now()
				status, text, err := s.chatAt(t.Context(), s.frontDoor(), model)
				took := time.Since(asked)
				mu.Lock()
				if assert.NoError(t, err) && assert.Equal(t, http.StatusOK, status, text) {
					answers[model]++
				}
				longest[model] = max(longest[model], took)
				mu.Unlock()
			}
		})
	}
	running.Wait()
	for _, model := range models {
		t.Logf("%s: %d answers, the longest after %s", model, answers[model], longest[model].Round(time.Millisecond))
		assert.Less(t, longest[model], bound, "%s", model)
		assert.GreaterOrEqual(t, answers[model], 2, model)
	}
	stop()
	t.Logf("%d swaps", len(swaps.ids))
	assert.GreaterOrEqual(t, len(swaps.ids), 2*len(models))
	for by := range swaps.pairs {
		s.eventually(fmt.Sprintf("an Event says why %s got %s", by.model, by.seat), func() bool {
			var events eventsv1.EventList
			require.NoError(t, s.api.List(t.Context(), &events, client.InNamespace(s.ns)))
			return slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
				return e.Reason == "SeatTaken" && e.Regarding.Kind == "SeatPool" && e.Related.Name == by.seat && strings.Contains(e.Note, by.model+"/seats")
			})
		})
	}
}

// swaps are what seats were given: how often, and which model each seat has had.
type swaps struct {
	ids   map[string]bool // of assignments
	pairs map[struct{ seat, model string }]bool
}

// swapsOf notes what the seats of a pool are given, until stop.
func (s *site) swapsOf(pool string) (noted *swaps, stop func()) {
	s.t.Helper()
	noted = &swaps{map[string]bool{}, map[struct{ seat, model string }]bool{}}
	stop = s.followAll(func(p *corev1.Pod, _ bool) {
		if of := podmeta.ReadAssignment(p); of.ID() != "" {
			noted.ids[p.Name+" "+of.ID()] = true
			noted.pairs[struct{ seat, model string }{p.Name, of.Model}] = true
		}
	}, client.MatchingLabels{podmeta.LabelSeat: pool})
	return noted, stop
}

func TestSeatsAreReplacedWhenTheirModelsAreIdle(t *testing.T) {
	s := newPool(t, nil)
	s.declareSeats(2, ", scaleDownDelaySeconds: 300", "a")
	end := s.doorStream(s.frontDoor(), "a", 300) // 15 s
	busy := s.seatOf("a")
	s.kubectl("patch", "seatpool/pool", "--type=merge", "-p", `{"spec": {"replicas": 1}}`)
	s.eventually("the seat without a model goes", func() bool { return len(s.seats("pool")) == 1 && s.seats("pool")[busy] != nil })
	s.kubectl("patch", "seatpool/pool", "--type=merge", "-p", `{"spec": {"template": {"metadata": {"labels": {"team": "x"}}}}}`)
	s.stays("the seat of a model with requests", func() bool { return s.seats("pool")[busy] != nil })
	was := s.seats("pool")[busy].UID
	got, why := end()
	assert.Equal(t, []any{300, ""}, []any{got, why}, "its stream runs to its end")
	s.eventually("then it is replaced", func() bool {
		all := s.seats("pool")
		return len(all) == 1 && !containsUID(all, was) && s.seatPool("pool").Status.Seats.Idle == 1
	})
	for _, pod := range s.seats("pool") {
		assert.Equal(t, "x", pod.Labels["team"])
	}
	s.chatOK("a")
	s.kubectl("delete", "seatpool/pool")
	s.eventually("its seats go with it", func() bool { return len(s.seats("pool")) == 0 })
	s.eventually("the entry says so", func() bool { return strings.Contains(s.entry("a", "seats").Message, "there is no SeatPool pool") })
}

// containsUID reports whether one of some Pods has a UID.
func containsUID(pods map[string]*corev1.Pod, uid any) bool {
	for _, pod := range pods {
		if any(pod.UID) == uid {
			return true
		}
	}
	return false
}
