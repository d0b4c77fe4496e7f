package decide

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDecisionsSayTheirNumbers(t *testing.T) {
	for want, m := range map[string]*Model{
		"the demand is 101, and what is ready carries 100":                                                      model(101, entry("a", serves(1))),
		"totalMinReplicas is 2, and 1 are ready":                                                                totals(2, 0, model(0, entry("a", serves(1)))),
		"3 replicas are wanted, and 1 are ready":                                                                external(3, entry("a", serves(1))),
		"maxReplicas is 1":                                                                                      model(101, entry("a", bounds(0, 1), serves(1))),
		"totalMaxReplicas is 1, and all entries together have as many":                                          totals(0, 1, model(101, entry("a", serves(1)))),
		"minReplicas is 2":                                                                                      model(0, entry("a", bounds(2, 0))),
		"it has failed (1 in a row), and is tried again at 2026-01-02T03:04:25Z":                                model(1, entry("a", failed(1, 10*time.Second))),
		"it is not tried before an edit: no ResourceProfile is named nvidia-gpu-l5":                             model(1, entry("a", invalid)),
		"Unschedulable: Pod a1 has been unschedulable for 30s: 0/2 nodes are available":                         model(1, entry("a", starts(1, time.Minute, unschedulable(time.Minute)))),
		"NotReadyInTime: Pod a1 has not been ready for 10m0s":                                                   model(1, entry("a", starts(1, time.Hour))),
		"QuotaExceeded: exceeded quota: gpus":                                                                   model(1, entry("a", awaits(1), refused)),
		"the highest demand was 5":                                                                              model(5, entry("a", serves(2))),
		"entry b serves, which comes after it":                                                                  model(5, entry("a"), entry("b", serves(1))),
		"the demand is 1, and what is ready carries 0: the replicas of its group that are ready first are kept": model(1, entry("a", in("g", 0)), entry("b", in("g", 0))),
		"the demand is 1, and what is ready carries 0: its model sleeps on GPUs that are free":                  model(1, entry("a", in("g", 0), asleep(1)), entry("b", in("g", 0))),
		"all members of its group have failed, and are tried again at 2026-01-02T03:04:35Z":                     model(1, entry("a", in("g", 0), failed(1, time.Minute)), entry("b", in("g", 0), failed(1, 0))),
		"its minReplicas is 0, so that it never runs: raise it":                                                 model(0, standby("s", bounds(0, 0))),
		"spec.autoscaling.mode is Off, and nothing is scaled":                                                   off(model(1, entry("a"))),
	} {
		assert.Equal(t, want, Decide(m).Entries[0].Why)
	}
}

func TestConditionsSayWhatIsWrong(t *testing.T) {
	limited := func(m *Model) string { return Decide(m).Limited }
	assert.Empty(t, limited(model(80, entry("a", serves(1)))))
	assert.Empty(t, limited(model(80, entry("a", failed(1, 0)))), "a back-off is no limit")
	assert.Equal(t, "the demand is 180, and what is ready carries 100, and the entries that can run have reached maxReplicas or totalMaxReplicas", limited(model(180, entry("a", bounds(0, 1), serves(1)))))
	assert.Equal(t, "entry a comes first, and cannot be tried while b serves: totalMaxReplicas is 1", limited(totals(0, 1, model(80, entry("a"), entry("b", serves(1))))))
	assert.Equal(t, "entry b has 0 of its minReplicas 1: raise totalMaxReplicas, which is 1", limited(totals(0, 1, model(0, entry("a", bounds(1, 0)), entry("b", bounds(1, 0))))))
	assert.Equal(t, "the last replica stays though no request needs it, as no standby runs", limited(model(0, entry("a", serves(1)), standby("s", failed(1, 0)))))

	failing := func(m *Model) string { return Decide(m).AllFailing }
	assert.Equal(t, "a: EngineFailed: exit 1; b: InvalidInput: no ResourceProfile is named nvidia-gpu-l5", failing(model(1, entry("a", failed(1, 0)), entry("b", invalid), standby("s", serves(1)))))
	assert.Empty(t, failing(model(1, entry("a", failed(1, 0)), entry("b"))), "b was not tried")
	assert.Empty(t, failing(model(1, entry("a", failed(1, time.Hour)))), "a is tried again")

	standbys := func(m *Model) string { return Decide(m).StandbyServing }
	assert.Equal(t, "s", standbys(model(1, entry("a"), standby("s", serves(1)))))
	assert.Empty(t, standbys(model(1, entry("a", serves(1)), standby("s", serves(1)))))
}

func TestNextDecisionIsWhenATimeIsOver(t *testing.T) {
	for name, c := range map[string]struct {
		model *Model
		again time.Duration
	}{
		"nothing is awaited":       {model(80, entry("a", serves(1))), 0},
		"a Pod is unschedulable":   {model(1, entry("a", starts(1, time.Second, unschedulable(time.Second)))), 29 * time.Second},
		"a Pod starts":             {model(1, entry("a", starts(1, time.Minute))), 9 * time.Minute},
		"a Pod is to be created":   {model(1, entry("a", awaits(1))), 0}, // the Deployment tells why it is not
		"an entry backs off":       {model(80, entry("a", failed(1, 10*time.Second)), entry("b", serves(1))), 20 * time.Second},
		"the sooner time counts":   {model(1, entry("a", failed(1, 10*time.Second)), entry("b", starts(1, time.Minute))), 20 * time.Second},
		"a failure is noted now":   {model(1, entry("a", starts(1, time.Minute, fails))), 30 * time.Second},
		"a Pod that goes does not": {model(1, entry("a", serves(1), starts(1, 0, leaving))), 0},
		"a Pod is ready just now":  {model(1, entry("a", became(0))), 0},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.again, Decide(c.model).Again) })
	}
}

func TestDeploymentIsWrittenOnlyIfItDiffers(t *testing.T) {
	d := Decide(model(80, entry("a", serves(1)))).Entries[0]
	assert.False(t, d.Write)
	assert.Empty(t, d.Foreign)
	d = Decide(model(180, entry("a", serves(1)))).Entries[0]
	assert.True(t, d.Write)
	assert.Equal(t, Asked{Replicas: 2}, d.Asked)
	d = Decide(model(80, entry("a", serves(1), func(e *Entry) { e.Replicas = 5 }))).Entries[0]
	assert.True(t, d.Write)
	assert.Equal(t, "the Deployment was scaled from 1 to 5 replicas by somebody else; it gets 1: edit the Model instead, or set spec.autoscaling.mode to Off", d.Foreign)
	d = Decide(off(model(80, entry("a", serves(1), func(e *Entry) { e.Replicas = 5 })))).Entries[0]
	assert.False(t, d.Write)
	assert.Empty(t, d.Foreign)
	d = Decide(model(1, entry("a", serves(1), in("g", 100)))).Entries[0]
	assert.True(t, d.Write, "the race is over, and its goal goes")
	assert.Zero(t, d.Asked.Goal)
}

func TestGoalOfARaceIsTheDemandWhenItBegan(t *testing.T) {
	goals := func(m *Model) (all []int) {
		for _, e := range Decide(m).Entries {
			all = append(all, e.Asked.Goal)
		}
		return all
	}
	race := func(goal int, so ...func(*Entry)) []Entry {
		return []Entry{entry("a", append(so, in("g", goal))...), entry("b", append(so, in("g", goal))...)}
	}
	assert.Equal(t, []int{151, 151}, goals(held(model(151, race(0)...))))
	assert.Equal(t, []int{151, 151}, goals(peaked(151, model(80, race(151, starts(2, 0))...))), "the demand falls")
	assert.Equal(t, []int{151, 151}, goals(unknown(model(80, race(151, starts(2, 0))...))), "a new controller has not seen the demand")
	assert.Equal(t, []int{351, 351}, goals(model(351, race(151, starts(2, 0))...)), "the demand grows")
	assert.Equal(t, []int{1, 1}, goals(totals(1, 0, model(0, race(0)...))), "the total minimum races too")
}

func TestPodsThatGoAreThoseThatTheReplicaSetTakes(t *testing.T) {
	for name, c := range map[string]struct {
		entry  Entry
		costs  map[string]int
		delete []string
	}{
		"cold ones before hot ones": {entry("a", serves(3), func(e *Entry) { e.Pods[0].Hot, e.Pods[2].Hot = true, true }), map[string]int{"a2": -1}, nil},
		"those with fewer requests": {entry("a", serves(3), func(e *Entry) { e.Pods[0].InFlight, e.Pods[1].InFlight, e.Pods[2].InFlight = 3, 1, 2 }), map[string]int{"a2": -1}, nil},
		"the younger ones":          {entry("a", serves(3)), map[string]int{"a3": -1}, nil},
		"the one chosen before":     {entry("a", serves(3), func(e *Entry) { e.Pods[0].Cost = -1 }), nil, nil},
		"unready ones":              {entry("a", serves(2), starts(1, time.Hour-1)), map[string]int{"a3": -1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c.entry.ScaleUpTimeout = 2 * time.Hour
			d := Decide(model(200, c.entry)).Entries[0]
			require.Equal(t, 2, d.Asked.Replicas)
			assert.Equal(t, c.costs, d.Costs)
			assert.Equal(t, c.delete, d.Delete)
		})
	}
	d := Decide(model(150, entry("a", starts(1, time.Second), starts(1, time.Minute, fails)))).Entries[0]
	assert.Equal(t, []string{"a2"}, d.Delete, "the ReplicaSet would take the younger one")
	d = Decide(model(80, entry("a", serves(1), func(e *Entry) { e.Pods[0].Cost = goesFirst }))).Entries[0]
	assert.Equal(t, map[string]int{"a1": 0}, d.Costs, "it stays after all")
}

func TestNumbersOfTheStatus(t *testing.T) {
	d := Decide(model(250, entry("a", serves(2), starts(1, 0), late(Pod{Leaving: true}), late(Pod{Failure: &Failure{}})))).Entries[0]
	assert.Equal(t, [3]int{2, 1, 2}, [3]int{d.Ready, d.Waiting, d.Losing})
}

func TestRecordsThatMakeNoSenseAreHarmless(t *testing.T) {
	d := Decide(model(1, entry("a", func(e *Entry) { e.Record.Failures = 3 }))).Entries[0]
	assert.Zero(t, d.Record.Failures)
	assert.Equal(t, 1, d.Asked.Replicas)
	d = Decide(model(1, entry("a", func(e *Entry) { e.Record.LastFailure = &Failure{ReasonInvalid, "", now} }))).Entries[0]
	assert.Nil(t, d.Record.LastFailure, "the input is right now")
	d = Decide(model(1, entry("a", failed(3, -24*time.Hour)))).Entries[0]
	assert.Equal(t, now.Add(longestPause), d.Record.BackoffUntil, "another controller's clock was ahead")
}

func BenchmarkDecide(b *testing.B) {
	for name, m := range map[string]*Model{
		"at rest": model(300, entry("a", bounds(0, 2), serves(2)), entry("b", serves(1)), entry("c"), standby("s")),
		"failing": held(model(300, entry("a", failed(3, 0)), entry("b", in("g", 0), starts(3, time.Minute, fails)), entry("c", in("g", 0)), standby("s", serves(1)))),
	} {
		b.Run(fmt.Sprintf("1000 models of %d entries, %s", len(m.Entries), name), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for range 1000 {
					Decide(m)
				}
			}
		})
	}
}

func TestAnnotationWithANumberThatCannotBeIsHarmless(t *testing.T) {
	says := func(replicas int, so ...func(*Entry)) Entry {
		return entry("a", append([]func(*Entry){serves(1), func(e *Entry) { e.Asked.Replicas = replicas }}, so...)...)
	}
	for _, replicas := range []int{math.MaxInt, -1} {
		for name, m := range map[string]*Model{
			"demand":   model(80, says(replicas)),
			"none":     model(0, says(replicas)),
			"maximum":  model(80, says(replicas, bounds(0, 2))),
			"totals":   totals(0, 2, model(80, says(replicas))),
			"external": external(1, says(replicas)),
		} {
			d := Decide(m).Entries[0]
			assert.True(t, d.Write, name)
			assert.LessOrEqual(t, d.Asked.Replicas, 2, name)
			assert.GreaterOrEqual(t, d.Asked.Replicas, 0, name)
		}
	}
}
