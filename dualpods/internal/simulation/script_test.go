package simulation

import (
	"fmt"
	"slices"
	"time"

	"hotseat.dev/hotseat/test/helpers/schedules"
)

// event is something that happens to the world.
type event struct {
	at   time.Duration
	what string
	arg  uint64 // which object, how long: what it means depends on the event
}

func (e event) String() string { return fmt.Sprintf("%v %s (%d)", e.at, e.what, e.arg) }

// chances says what scripts are made of.
var chances = []struct {
	what   string
	weight int
}{
	{"make cache", 16}, {"delete cache", 7}, {"edit cache", 6}, {"make group", 4}, {"delete group", 2}, {"edit group", 5},
	{"label node", 8}, {"node down", 3}, {"node leaves", 3}, {"node joins", 4}, {"node comes back empty", 2},
	{"end launcher", 4}, {"replace launcher", 5}, {"silence launcher", 7}, {"add launcher", 6}, {"remove launcher", 3},
	{"trouble source", 4}, {"hang source", 2}, {"break fetches", 5}, {"move branch", 3}, {"damage", 4}, {"secret", 4},
	{"take lease", 4}, {"give lease", 3}, {"API down", 2}, {"API flaky", 3}, {"refuse labels", 2}, {"odd label", 2}, {"kill controller", 5}, {"kill at step", 5},
	{"silence and delete", 3}, {"secret at a fetch", 3},
	{"make requester", 10}, {"delete requester", 7}, {"refuse requester", 2}, {"cordon", 2}, {"end instance", 2}, {"race for a sleeper", 5},
	{"unselect node", 3},
}

// themes are what some scripts have much of.
var themes = [][]string{
	{}, {}, {},
	{"make requester", "delete requester", "API flaky", "refuse requester"},
	{"make requester", "delete requester", "kill controller"},
	{"race for a sleeper", "delete requester"},
	{"unselect node", "make requester", "delete requester"},
	{"silence launcher", "add launcher", "make cache"},
	{"replace launcher", "remove launcher", "add launcher", "end launcher"},
	{"kill controller", "kill at step", "make cache", "silence launcher"},
	{"break fetches", "trouble source", "make cache"},
	{"delete cache", "make cache", "take lease", "silence launcher"},
	{"edit group", "delete group", "make group", "label node"},
	{"node down", "node leaves", "node joins", "node comes back empty"},
	{"secret", "secret at a fetch", "kill controller", "edit cache", "make cache"},
	{"API down", "API flaky", "refuse labels", "label node", "kill controller"},
	{"hang source", "kill controller", "move branch"},
}

// drawScript makes the script of a seed.
func drawScript(seed uint64) (script []event) {
	d := &schedules.Draws{Seed: seed}
	weights, total := slices.Clone(chances), 0
	theme := themes[d.Draw("theme", uint64(len(themes)))]
	for n := range weights {
		if slices.Contains(theme, weights[n].what) {
			weights[n].weight = 3 * (weights[n].weight + 3)
		}
		total += weights[n].weight
	}
	at := 4 * time.Second
	for range 3 + d.Draw("events", 22) {
		at += d.Between("gap", time.Millisecond, 80*time.Millisecond) << d.Draw("gaps", 10)
		x := int(d.Draw("what", uint64(total)))
		for _, c := range weights {
			if x -= c.weight; x < 0 {
				script = append(script, event{at, c.what, d.Draw("arg", 1<<20)})
				break
			}
		}
	}
	first := event{at: 3500 * time.Millisecond, what: "make cache", arg: d.Draw("arg", 1<<20)}
	return append([]event{first}, script...)
}

// pick is one of some things, nothing where there is none.
func pick[T any](from []T, arg uint64) (one T, ok bool) {
	if len(from) == 0 {
		return one, false
	}
	return from[arg%uint64(len(from))], true
}
