package simulation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/spec/launcherapi"
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
	"An engine that loads when its launcher comes back has the time of a start": {seed: 3151, steps: []step{
		{at: 0, what: "loads take long", limit: 4 * time.Second, n: 18},
		{at: 177 * time.Millisecond, what: "create", request: "r2", id: "d", gpus: []string{"g0"}, share: "0.9"},
		{at: 345 * time.Millisecond, what: "kill", limit: 2 * time.Second},
		{at: 30 * time.Second, what: "wake", id: "d"},
	}},
	"An engine that waits for the disk of its log is put back to sleep when the disk answers": {seed: 1, end: 100 * time.Second, steps: []step{
		{at: 0, what: "create", request: "r1", id: "a", gpus: []string{"g0"}, share: "0.5"},
		{at: 10 * time.Second, what: "sleep", id: "a"},
		{at: 14 * time.Second, what: "disk stalls", limit: time.Minute, n: 1},
		{at: 14*time.Second + time.Millisecond, what: "wake", id: "a"},
	}},
	"An engine whose disk stalls until a moment before the check is over does not hang": {seed: 1, end: time.Minute, steps: []step{
		{at: 0, what: "create", request: "r1", id: "a", gpus: []string{"g0"}, share: "0.5"},
		{at: 10 * time.Second, what: "disk stalls", limit: 19 * time.Second, n: 1},
	}},
	"An engine does not hang whose disk is full and stalls": {seed: 20261127710010630, end: 80 * time.Second, steps: []step{
		{at: 5252 * time.Millisecond, what: "driver hangs", gpus: []string{"g0"}, limit: 6146 * time.Millisecond},
		{at: 5880 * time.Millisecond, what: "create", request: "r2", id: "a", gpus: []string{"g0", "g1"}, share: "0.5", port: 9000},
		{at: 9797 * time.Millisecond, what: "disk full", limit: 42609 * time.Millisecond},
		{at: 18557 * time.Millisecond, what: "disk stalls", limit: 61914 * time.Millisecond, n: 1},
	}},
	"An engine that woke in part is not believed when its driver falls silent": {seed: 20261127710015682, end: 60 * time.Second, steps: []step{
		{at: 2 * time.Second, what: "create", request: "first of b", id: "b", gpus: []string{"g1"}, share: "0.4"},
		{at: 18503 * time.Millisecond, what: "sleep", id: "b"},
		{at: 18748 * time.Millisecond, what: "swap in sleeping", request: "r3", id: "b", level: 2, canary: true, limit: 20 * time.Second, keyed: true},
		{at: 19077 * time.Millisecond, what: "wake in part", id: "b", limit: 27888 * time.Millisecond},
		{at: 25601 * time.Millisecond, what: "driver hangs", gpus: []string{"g1"}, limit: 8430 * time.Millisecond},
	}},
	"The launcher of a copied state folder closes in time while a driver hangs": {seed: 8815000410, end: 60 * time.Second, steps: []step{
		{at: 458 * time.Millisecond, what: "driver hangs", gpus: []string{"g0"}, limit: 35 * time.Second},
		{at: 8328 * time.Millisecond, what: "kill", limit: 870 * time.Millisecond, n: 8, damage: "a swap"},
		{at: 10784 * time.Millisecond, what: "create", request: "r2", id: "b", gpus: []string{"g0"}, share: "0.9", start: "auto"},
		{at: 16535 * time.Millisecond, what: "copy of the folder"},
	}},
	"A swap that records its undo on a disk that stalls does not wait for nothing": {seed: 8815002382, end: 40 * time.Second, steps: []step{
		{at: 18693 * time.Millisecond, what: "driver hangs", gpus: []string{"g1"}, limit: 4703 * time.Millisecond},
		{at: 19148 * time.Millisecond, what: "swap in new", request: "r10", keyed: true, id: "c", gpus: []string{"g1"}, share: "0.3", port: 9001, out: "stop"},
		{at: 22311 * time.Millisecond, what: "disk stalls", limit: 12395 * time.Millisecond},
	}},
	"A swap waits for one that records its undo on a disk that stalls": {seed: 9900020587, end: 40 * time.Second, steps: []step{
		{at: 2262 * time.Millisecond, what: "driver hangs", gpus: []string{"g0"}, limit: 14073 * time.Millisecond},
		{at: 2353 * time.Millisecond, what: "swap in new", request: "r3", keyed: true, persist: true, id: "d", gpus: []string{"g1"}, share: "0.9", limit: 8 * time.Second},
		{at: 3776 * time.Millisecond, what: "swap in new", request: "r4", id: "d", gpus: []string{"g0", "g1"}, share: "0.9", level: 1, canary: true},
		{at: 9693 * time.Millisecond, what: "swap in new", request: "r7", keyed: true, id: "c", gpus: []string{"g0"}, share: "0.5", out: "stop", level: 2, limit: 8 * time.Second},
		{at: 12683 * time.Millisecond, what: "disk stalls", limit: 15479 * time.Millisecond},
		{at: 12937 * time.Millisecond, what: "swap in new", request: "r9", id: "c", gpus: []string{"g0"}, share: "0.9", out: "stop"},
	}},
	"An engine that woke in part is not believed, though the driver did not answer before": {seed: 9900001061, end: 75 * time.Second, steps: []step{
		{at: time.Second, what: "create", request: "first of a", id: "a", gpus: []string{"g0"}, share: "0.3"},
		{at: 12 * time.Second, what: "sleep", id: "a"},
		{at: 14 * time.Second, what: "disk stalls", limit: 18707 * time.Millisecond, n: 1},
		{at: 14*time.Second + time.Millisecond, what: "wake", id: "a"},
		{at: 15039 * time.Millisecond, what: "wake in part", id: "a", limit: 29637 * time.Millisecond},
		{at: 15081 * time.Millisecond, what: "driver hangs", gpus: []string{"g0"}, limit: 11488 * time.Millisecond},
	}},
	"An engine that dies of what it does late has its time to be cleared away": {seed: 9900003096, end: 10730204176 * time.Nanosecond, steps: []step{
		{at: 100 * time.Millisecond, what: "create", request: "r1", id: "a", gpus: []string{"g0"}, share: "0.9", odd: "dies of its first call"},
		{at: 115 * time.Millisecond, what: "answer late", id: "a", limit: 3376 * time.Millisecond, n: 25},
	}},
	"An instance that a swap starts again, after it died with the launcher before it had a process, is ended with its swap": {seed: 8816002229, steps: []step{
		{at: 3294 * time.Millisecond, what: "kill", limit: 2071 * time.Millisecond, n: 32},
		{at: 5031 * time.Millisecond, what: "swap in new", request: "r1", id: "a", gpus: []string{"g1"}, share: "0.9", start: "auto", threads: "2", out: "sleep"},
		{at: 5043 * time.Millisecond, what: "create", request: "r2", id: "c", gpus: []string{"g0"}, share: "0.5", start: "auto"},
		{at: 10600 * time.Millisecond, what: "create", request: "r3", id: "d", gpus: []string{"g0"}, share: "0.5", port: 9000, start: "auto"},
		{at: 12782 * time.Millisecond, what: "swap in new", request: "r4", keyed: true, persist: true, id: "c", gpus: []string{"g0"}, share: "0.9", level: 2},
		{at: 13188 * time.Millisecond, what: "swap in sleeping", request: "r5", keyed: true, persist: true, id: "c", level: 2},
		{at: 19253 * time.Millisecond, what: "kill", limit: 193 * time.Millisecond},
		{at: 20175 * time.Millisecond, what: "swap in sleeping", request: "r7", keyed: true, persist: true, id: "d", out: "sleep", limit: 8 * time.Second},
		{at: 20319 * time.Millisecond, what: "create", request: "r9", id: "c", gpus: []string{"g0"}, share: "0.5", start: "fork"},
	}},
	"The release of an earlier instance of that id does not end the lease of the next": {seed: 520002951, steps: []step{
		{at: 51 * time.Millisecond, what: "disk stalls", limit: 7616 * time.Millisecond},
		{at: 1370 * time.Millisecond, what: "create", request: "r1", id: "c", gpus: []string{"g0"}, share: "0.5", port: 9000},
		{at: 7239 * time.Millisecond, what: "create", request: "r3", id: "c", gpus: []string{"g0"}, share: "0.3", pinned: true, stored: "auto"},
		{at: 30 * time.Second, what: "sleep", id: "c"},
	}},
	"A sleep is not said to be done when its instance was woken meanwhile": {seed: 8816002852, steps: []step{
		{at: 594 * time.Millisecond, what: "create", request: "r1", id: "d", gpus: []string{"g1"}, share: "0.4"},
		{at: 3153 * time.Millisecond, what: "swap in new", request: "r3", keyed: true, id: "c", gpus: []string{"g1"}, share: "0.5", level: 1},
		{at: 3489 * time.Millisecond, what: "disk stalls", limit: 2888 * time.Millisecond, n: 1},
		{at: 4801 * time.Millisecond, what: "disk stalls", limit: 7686 * time.Millisecond, n: 1},
		{at: 6564 * time.Millisecond, what: "sleep", id: "d", level: 2},
	}},
	"A swap that is taken up answers in time": {seed: 2848, steps: []step{
		{at: 0, what: "create", request: "r1", id: "b", gpus: []string{"g1"}, share: "0.5"},
		{at: 10 * time.Second, what: "answer late", id: "b", limit: 40 * time.Second, n: 30},
		{at: 11 * time.Second, what: "swap in new", request: "r2", keyed: true, persist: true, id: "c", gpus: []string{"g1"}, share: "0.9", limit: 3 * time.Second},
		{at: 13500 * time.Millisecond, what: "kill", limit: 2 * time.Second},
		{at: 60 * time.Second, what: "wake", id: "b"},
	}},
	"A swap does not start an instance again that an undo before it removed": {seed: 20261127000006622, steps: []step{
		{at: 9313 * time.Millisecond, what: "swap in new", request: "r3", keyed: true, persist: true, id: "c", gpus: []string{"g1"}, share: "0.3", odd: "dies while it loads", out: "sleep"},
		{at: 10141 * time.Millisecond, what: "swap in sleeping", request: "r4", keyed: true, persist: true, id: "c", out: "stop", level: 2, limit: 20 * time.Second},
		{at: 11966 * time.Millisecond, what: "kill", limit: 2651175787 * time.Nanosecond},
	}},
	"The next swap may start an instance again before the one that is undone is answered": {seed: 20261127000006622, steps: []step{
		{at: 0, what: "create", request: "r1", id: "c", gpus: []string{"g1"}, share: "0.3", odd: "dies while it loads"},
		{at: 9313 * time.Millisecond, what: "swap in new", request: "r3", keyed: true, persist: true, id: "c", gpus: []string{"g1"}, share: "0.3", odd: "dies while it loads", out: "sleep"},
		{at: 9500 * time.Millisecond, what: "swap in sleeping", request: "r4", keyed: true, persist: true, id: "c", out: "stop", level: 2, limit: 20 * time.Second},
		{at: 10 * time.Second, what: "kill", limit: 5 * time.Second},
	}},
	"An engine that lost memory while its driver hung is not believed once the driver answers": {seed: 20261127000032234, end: 40 * time.Second, steps: []step{
		{at: 3405 * time.Millisecond, what: "swap in new", request: "r1", id: "b", gpus: []string{"g1"}, share: "0.4", limit: 20 * time.Second},
		{at: 11711 * time.Millisecond, what: "driver hangs", gpus: []string{"g1"}, limit: 17477740912 * time.Nanosecond},
		{at: 16049 * time.Millisecond, what: "sleep", id: "b", level: 1},
		{at: 16348 * time.Millisecond, what: "sleep in part", id: "b", limit: 10599712584 * time.Nanosecond},
	}},
	"An engine that lost memory for a swap while its driver hung is not believed once the driver answers": {seed: 20261127000017734, end: 40 * time.Second, steps: []step{
		{at: 5577 * time.Millisecond, what: "swap in new", request: "r6", id: "d", gpus: []string{"g0"}, share: "0.4", pinned: true, level: 1, limit: 8 * time.Second},
		{at: 10290 * time.Millisecond, what: "sleep in part", id: "d", limit: 42525875552 * time.Nanosecond},
		{at: 13661 * time.Millisecond, what: "driver hangs", gpus: []string{"g0"}, limit: 7980744144 * time.Nanosecond},
		{at: 13700 * time.Millisecond, what: "swap in new", request: "r9", keyed: true, id: "a", gpus: []string{"g0", "g1"}, share: "0.4", out: "sleep"},
	}},
	"A start that waited for its preloader has less time left": {seed: 20261128800001379, end: 70 * time.Second, steps: []step{
		{at: 2530 * time.Millisecond, what: "loads take long", limit: 25820121648 * time.Nanosecond, n: 56},
		{at: 2616 * time.Millisecond, what: "create", request: "r2", id: "b", gpus: []string{"g0", "g1"}, share: "0.4", pinned: true, start: "auto"},
	}},
	"A sleeper whose wake has failed may be evicted, though the wake is not answered yet": {
		seed: 20261127000052713, end: 70 * time.Second, budget: launcherapi.Budget{MaxSleepersPerGPU: 2, MaxHostSleeperBytes: 25 * gib, MaxInstances: 2}, steps: []step{
			{at: time.Second, what: "create", request: "first of a", id: "a", gpus: []string{"g0"}, share: "0.3"},
			{at: 2 * time.Second, what: "create", request: "first of b", id: "b", gpus: []string{"g1"}, share: "0.3"},
			{at: 12 * time.Second, what: "sleep", id: "a"},
			{at: 14 * time.Second, what: "disk stalls", limit: 51573268902 * time.Nanosecond, n: 1},
			{at: 14*time.Second + time.Millisecond, what: "wake", id: "a"},
			{at: 14013 * time.Millisecond, what: "swap in new", request: "r1", id: "d", gpus: []string{"g0"}, share: "0.4", out: "stop", level: 2, keyed: true},
		}},
	"A sleeper whose wake has failed may be evicted for a swap that is undone": {
		seed: 20261127000091529, end: 70 * time.Second, budget: launcherapi.Budget{MaxHostSleeperBytes: 15 * gib, MaxInstances: 2, MinResidency: launcherapi.Duration(10 * time.Second)}, steps: []step{
			{at: time.Second, what: "create", request: "first of a", id: "a", gpus: []string{"g0"}, share: "0.3"},
			{at: 2 * time.Second, what: "create", request: "first of b", id: "b", gpus: []string{"g1"}, share: "0.3"},
			{at: 12 * time.Second, what: "sleep", id: "a"},
			{at: 14 * time.Second, what: "disk stalls", limit: 46327894144 * time.Nanosecond, n: 1},
			{at: 14*time.Second + time.Millisecond, what: "wake", id: "a"},
			{at: 30172 * time.Millisecond, what: "swap in new", request: "r6", gpus: []string{"g0"}, share: "0.4", odd: "dies while it loads", out: "stop", level: 2, canary: true},
		}},
	"An engine whose wake has failed while its driver hangs is ended": {seed: 20261201000019914, end: 90 * time.Second, steps: []step{
		{at: time.Second, what: "create", request: "first of a", id: "a", gpus: []string{"g0"}, share: "0.3"},
		{at: 12 * time.Second, what: "sleep", id: "a"},
		{at: 14 * time.Second, what: "disk stalls", limit: 49964470552 * time.Nanosecond, n: 1},
		{at: 14*time.Second + time.Millisecond, what: "wake", id: "a"},
		{at: 16405 * time.Millisecond, what: "driver hangs", gpus: []string{"g0"}, limit: 61475350880 * time.Nanosecond},
	}},
	"A swap whose turn has come records its claims on a disk that stalls": {
		seed: 20261201000025263, end: 50 * time.Second, budget: launcherapi.Budget{MaxSleepersPerGPU: 2, MaxHostSleeperBytes: 15 * gib, MaxInstances: 2, MinResidency: launcherapi.Duration(10 * time.Second)}, steps: []step{
			{at: 12010 * time.Millisecond, what: "swap in new", request: "r1", id: "b", gpus: []string{"g0", "g1"}, share: "0.5", out: "stop", level: 1},
			{at: 20373 * time.Millisecond, what: "disk stalls", limit: 15616574880 * time.Nanosecond, n: 1},
			{at: 21234 * time.Millisecond, what: "swap in new", request: "r4", id: "a", gpus: []string{"g1"}, share: "0.9", out: "sleep", level: 1},
			{at: 25197 * time.Millisecond, what: "create", request: "r9", id: "a", gpus: []string{"g0"}, share: "0.3"},
			{at: 27486 * time.Millisecond, what: "client goes away", request: "r2"},
		}},
	"A sleeper whose record is lost counts for the budget once its engine answers": {
		seed: 20261201000029295, end: 90 * time.Second, budget: launcherapi.Budget{MaxSleepersPerGPU: 1, MaxHostSleeperBytes: 15 * gib, MaxInstances: 2}, steps: []step{
			{at: time.Second, what: "create", request: "first of a", id: "a", gpus: []string{"g1"}, share: "0.3", pinned: true},
			{at: 2 * time.Second, what: "create", request: "first of b", id: "b", gpus: []string{"g1"}, share: "0.3", pinned: true},
			{at: 12 * time.Second, what: "sleep", id: "a"},
			{at: 14 * time.Second, what: "sleep", id: "b"},
			{at: 18049 * time.Millisecond, what: "hang", id: "b", limit: 56317917952 * time.Nanosecond},
			{at: 19520 * time.Millisecond, what: "kill", limit: 2763076238 * time.Nanosecond, after: true, again: 2, damage: "an instance"},
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
