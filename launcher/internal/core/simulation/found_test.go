package simulation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// found are the scripts that showed what was wrong with the launcher, shortened.
var found = map[string]script{
	"The events tell when what could not be ended has ended": {seed: 108, steps: []step{
		{at: 398 * time.Millisecond, what: "create", request: "r1", id: "d", gpus: []string{"g1"}, share: "0.9"},
		{at: 10 * time.Second, what: "no descriptors", limit: 4 * time.Second},
		{at: 13 * time.Second, what: "delete", id: "d"},
		{at: 30 * time.Second, what: "wake", id: "d"},
	}},
	"A swap is undone though the file of the one that leaves is lost": {seed: 4950, steps: []step{
		{at: 0, what: "create", request: "r1", id: "b", gpus: []string{"g0"}, share: "0.5"},
		{at: 10 * time.Second, what: "swap in new", request: "r3", keyed: true, persist: true, id: "c", gpus: []string{"g0"}, share: "0.9"},
		{at: 10*time.Second + 105*time.Millisecond, what: "kill", limit: time.Second, damage: "an instance"},
		{at: 30 * time.Second, what: "wake", id: "b"},
	}},
	"A swap is undone though the file of the one that it made is lost": {seed: 7625, steps: []step{
		{at: 0, what: "loads take long", limit: 13 * time.Second, n: 32},
		{at: 9 * time.Second, what: "swap in new", request: "r12", keyed: true, persist: true, id: "b", gpus: []string{"g0"}, share: "0.9", limit: 8 * time.Second},
		{at: 11 * time.Second, what: "kill", limit: time.Second, damage: "an instance"},
		{at: 40 * time.Second, what: "wake", id: "b"},
	}},
	"A swap whose time is over while the one that comes in is asked for a token says so": {seed: 1003445, steps: []step{
		{at: 3084 * time.Millisecond, what: "swap in new", request: "r1", id: "d", gpus: []string{"g0"}, share: "0.5", out: "stop", level: 2},
		{at: 11229 * time.Millisecond, what: "swap in new", request: "r2", keyed: true, persist: true, id: "c", gpus: []string{"g0"}, share: "0.5", pinned: true, out: "stop", canary: true, limit: 3 * time.Second},
	}},
	"A sleeper whose stop is not over when its swap fails is said to be evicted": {seed: 15020449, steps: []step{
		{at: 4061 * time.Millisecond, what: "swap in new", request: "r1", id: "b", gpus: []string{"g0"}, share: "0.4", out: "stop", level: 1, limit: 8 * time.Second},
		{at: 5757 * time.Millisecond, what: "stranger", gpus: []string{"g0"}, limit: 8801 * time.Millisecond, n: 63},
		{at: 8332 * time.Millisecond, what: "sleep", id: "b", level: 1},
		{at: 10902 * time.Millisecond, what: "swap in new", request: "r8", keyed: true, persist: true, gpus: []string{"g0"}, share: "0.4", out: "sleep", limit: 8 * time.Second},
		{at: 11512 * time.Millisecond, what: "memory is lost", limit: 48806 * time.Millisecond},
		{at: 60 * time.Second, what: "wake", id: "b"},
	}},
	"An engine that did not say whether it sleeps is woken by the sequence of level 2": {seed: 17046941, steps: []step{
		{at: 8287 * time.Millisecond, what: "swap in new", request: "r2", keyed: true, id: "c", gpus: []string{"g0"}, share: "0.4", level: 2, limit: 20 * time.Second},
		{at: 8495 * time.Millisecond, what: "answer late", id: "c", limit: 23353 * time.Millisecond, n: 13},
		{at: 13287 * time.Millisecond, what: "disk full", limit: 1631 * time.Millisecond},
		{at: 13294 * time.Millisecond, what: "sleep", id: "c", level: 2},
		{at: 13405 * time.Millisecond, what: "close", limit: 1616 * time.Millisecond},
		{at: 19790 * time.Millisecond, what: "swap out", request: "r7", keyed: true, gpus: []string{"g0"}, out: "stop", level: 1, limit: 20 * time.Second},
		{at: 60 * time.Second, what: "wake", id: "c"},
	}},
	"An engine whose record is lost, and that never says whether it sleeps, is not taken to be awake": {seed: 30017253, steps: []step{
		{at: 8001 * time.Millisecond, what: "create", request: "second", id: "c", gpus: []string{"g0"}, share: "0.9"},
		{at: 32803 * time.Millisecond, what: "sleep", id: "c"},
		{at: 33800 * time.Millisecond, what: "kill", limit: 2 * time.Second, damage: "an instance"},
		{at: 33900 * time.Millisecond, what: "hang for good", id: "c"},
	}},
	"A swap that is taken up answers in time": {seed: 2848, steps: []step{
		{at: 0, what: "create", request: "r1", id: "b", gpus: []string{"g1"}, share: "0.5"},
		{at: 10 * time.Second, what: "answer late", id: "b", limit: 40 * time.Second, n: 30},
		{at: 11 * time.Second, what: "swap in new", request: "r2", keyed: true, persist: true, id: "c", gpus: []string{"g1"}, share: "0.9", limit: 3 * time.Second},
		{at: 13500 * time.Millisecond, what: "kill", limit: 2 * time.Second},
		{at: 60 * time.Second, what: "wake", id: "b"},
	}},
}

func TestWhatTheSimulationHasFoundIsMended(t *testing.T) {
	for name, s := range found {
		t.Run(name, func(t *testing.T) {
			for range replays {
				if out := playWatched(t, s, true); !assert.Empty(t, out.wrong) {
					t.Logf("%s\n%s", s, out.log)
					break
				}
			}
		})
	}
}
