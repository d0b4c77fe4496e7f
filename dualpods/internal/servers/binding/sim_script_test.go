package binding

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/helpers/schedules"
)

// simEvent is something that happens to the simulated world.
type simEvent struct {
	at   time.Duration
	what string
	arg  uint64 // which object, how long: what it means depends on the event
}

func (e simEvent) String() string { return fmt.Sprintf("%v %s (%d)", e.at, e.what, e.arg) }

// simChances says what scripts are made of.
var simChances = []struct {
	what   string
	weight int
}{
	{"create", 30}, {"delete", 16}, {"force", 5}, {"vanish", 4}, {"kill controller", 12}, {"edit config", 3},
	{"restart launcher", 4}, {"kill launcher", 3}, {"silence launcher", 3}, {"delete launcher", 3}, {"kill engine", 6},
	{"fail starts", 3}, {"API down", 3}, {"API flaky", 3}, {"restart program", 4}, {"hang program", 4},
	{"end program", 2}, {"touch", 3}, {"cordon", 2}, {"delete node", 1}, {"sleep by hand", 3}, {"wake by hand", 2}, {"delete by hand", 3}, {"lie", 3},
	{"break input", 3}, {"mend input", 2}, {"hold launcher", 1}, {"vanish launcher", 3}, {"slow pulls", 1}, {"late containers", 6}, {"sleep and kill", 2}, {"silence kubelet", 2},
	{"create on demand", 4}, {"hold GPU", 3}, {"slow call", 3}, {"slow order", 3}, {"odd programs", 3}, {"hang and delete", 2}, {"lose both", 2},
	{"hang and edit", 2}, {"late swap", 2}, {"disguise", 2}, {"refuse sleep", 3}, {"end launcher", 3}, {"evict launcher", 3}, {"silence and vanish", 2}, {"damage record", 2}, {oddUnready, 2}, {oddStays, 2}, {oddBind, 2}, {"unselect", 2}, {"end by kubelet", 2}, {"create together", 5},
}

// simThemes are what some scripts have much of.
var simThemes = [][]string{
	{}, {}, {},
	{"kill engine", "sleep by hand", "delete by hand", "kill controller"},
	{"break input", "mend input", "edit config", "fail starts"},
	{"lie", "restart program", "hang program", "delete"},
	{"silence launcher", "restart launcher", "delete launcher", "hold launcher", "vanish launcher"},
	{"cordon", "slow pulls", "create"},
	{"late containers", "create", "kill engine", "sleep by hand"},
	{"unselect", "create", "delete", "end by kubelet"},
	{"fail starts", "kill controller", "delete", "kill engine"},
	{"hang program", "delete", "force", "vanish"},
	{"hang program", "restart program", "vanish launcher"},
	{"sleep and kill", "kill launcher", "kill controller"},
	{"end program", "create"},
	{"silence kubelet", "kill controller", "create"},
	{"API flaky", "API down", "kill engine", "lie"},
	{"create on demand", "delete"},
	{"create on demand", "force", "wake by hand", "slow order"},
	{"hold GPU", "delete"},
	{"late swap", "slow call", "slow order", "force"},
	{"odd programs", "hang and delete", "lose both", "hang and edit"},
	{"end launcher", "delete", "vanish"},
	{"silence and vanish", "create on demand"},
	{oddUnready, oddStays, "sleep by hand", "kill engine"},
	{oddUnready, "evict launcher"},
	{oddBind, "restart program", "silence launcher"},
	{"create together", "API flaky", "kill controller", "delete"},
}

// drawScript makes the script of a seed.
func drawScript(seed uint64) (script []simEvent) {
	s := &sim{draws: schedules.Draws{Seed: seed}}
	chances, total := slices.Clone(simChances), 0
	theme := simThemes[s.draw("theme", uint64(len(simThemes)))]
	for n := range chances {
		if slices.Contains(theme, chances[n].what) {
			chances[n].weight = 4 * (chances[n].weight + 3)
		}
		total += chances[n].weight
	}
	at := time.Duration(0)
	for range 3 + s.draw("events", 22) {
		at += s.between("gap", time.Millisecond, 40*time.Millisecond) << s.draw("gaps", 8)
		x := int(s.draw("what", uint64(total)))
		for _, c := range chances {
			if x -= c.weight; x < 0 {
				script = append(script, simEvent{at, c.what, s.draw("arg", 1<<20)})
				break
			}
		}
	}
	return s.movedOrLying(s.madeUnready(s.reinstalled(s.modelsComeAndGo(append([]simEvent{{at: time.Millisecond, what: "create", arg: s.draw("arg", 1<<20)}}, script...)))))
}

// inOrder returns the events of a script in the order of their times.
func inOrder(script []simEvent) []simEvent {
	slices.SortStableFunc(script, func(a, b simEvent) int { return cmp.Compare(a.at, b.at) })
	return script
}

// pick is one of some things, nothing where there is none.
func pick[T any](from []T, arg uint64) (one T, ok bool) {
	if len(from) == 0 {
		return one, false
	}
	return from[arg%uint64(len(from))], true
}

func (s *sim) requesters() (names []string) {
	for _, name := range sortedKeys(s.api.pods) {
		if podmeta.IsRequester(s.api.pods[name]) {
			names = append(names, name)
		}
	}
	return names
}

// targets are the requesters, and those that are served more often.
func (s *sim) targets() []string {
	all := s.requesters()
	for _, name := range s.requesters() {
		if p := s.programs[s.api.pods[name].UID]; p != nil && p.proxy.Ready {
			all = append(all, name, name)
		}
	}
	return all
}

// bound are the living requesters with a record that are served, or are not yet.
func (s *sim) bound(served bool) (names []string) {
	for _, name := range s.requesters() {
		p := s.programs[s.api.pods[name].UID]
		if p != nil && p.up && p.proxy.Ready == served && s.living(p.uid) != nil && slices.ContainsFunc(s.records(), func(r simRecord) bool { return r.RequesterUID == p.uid }) {
			names = append(names, name)
		}
	}
	return names
}

func (s *sim) livingLaunchers() (all []*simLauncher) {
	for _, key := range sortedKeys(s.launchers) {
		if !s.launchers[key].dead {
			all = append(all, s.launchers[key])
		}
	}
	return all
}

// instances are those in one of these states.
func (s *sim) instances(states ...launcher.State) (all []func() (*simLauncher, *simInstance)) {
	for _, l := range s.livingLaunchers() {
		for _, id := range sortedKeys(l.all) {
			if i := l.all[id]; slices.Contains(states, launcher.State(i.State)) {
				all = append(all, func() (*simLauncher, *simInstance) { return l, i })
			}
		}
	}
	return all
}
