package binding

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// What there is of a GPU's memory, and how much an engine that is awake takes: a
// big one leaves room for one sleeper or two, and of small ones several fit.
const (
	simMemory = 100
	simBig    = 75
	simSmall  = 30
)

// occupies says that an instance has its GPUs' memory.
func occupies(i *simInstance) bool {
	switch launcher.State(i.State) {
	case launcher.Starting, launcher.Awake, launcher.FallingAsleep, launcher.Waking, launcher.Stopping:
		return true
	default:
		return false
	}
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(g string) bool { return slices.Contains(b, g) })
}

// on are the instances on some GPUs, sorted.
func (l *simLauncher) on(gpus []string) (all []*simInstance) {
	for _, id := range sortedKeys(l.all) {
		if i := l.all[id]; overlap(i.GPUUUIDs, gpus) {
			all = append(all, i)
		}
	}
	return all
}

// memoryFree says that nobody else of the launcher has memory of those GPUs, and
// that other launchers of the node leave room for one that is awake.
func (l *simLauncher) memoryFree(id string, gpus []string) bool {
	if slices.ContainsFunc(l.on(gpus), func(i *simInstance) bool { return occupies(i) && i.InstanceID != id }) {
		return false
	}
	return !slices.ContainsFunc(gpus, func(gpu string) bool {
		room := uint64(simMemory)
		for _, i := range l.beside(gpu) {
			if occupies(i.simInstance) {
				room -= min(room, i.holds)
			}
		}
		return room < l.s.awake
	})
}

// weigh brings what an instance has of each of its GPUs up to its state. One that
// is being ended has what it had.
func (i *simInstance) weigh(awake uint64) {
	switch {
	case i.State == string(launcher.Stopping):
		return
	case occupies(i):
		i.holds = awake
	case i.State == string(launcher.Sleeping):
		i.holds, i.byHand = i.residue, false
	default:
		i.holds = 0
	}
	i.GPUBytes = map[string]uint64{} // another one: those who heard of it have the old one
	for _, gpu := range i.GPUUUIDs {
		i.GPUBytes[gpu] = i.holds
	}
	switch {
	case !occupies(i):
		used := time.Now()
		i.LastUsedAt, i.up = &used, time.Time{}
	case i.up.IsZero():
		i.up = time.Now()
	}
}

// makeRoom says which of the launcher's own sleepers have to go for an instance,
// the least recently used first. It refuses the swap where the memory that others
// hold is missing.
func (l *simLauncher) makeRoom(sw *simSwap, id string) (evict []*simInstance, err error) {
	for _, gpu := range sw.gpus {
		var own, foreign uint64
		var sleepers []*simInstance
		for _, i := range l.on([]string{gpu}) {
			switch {
			case i.InstanceID == id || slices.Contains(evict, i):
			case awake(i):
				own += i.residue // it is about to sleep
			default:
				own += i.holds
				if i.State == string(launcher.Sleeping) && i.SwapID == "" {
					sleepers = append(sleepers, i)
				}
			}
		}
		others := l.beside(gpu)
		for _, i := range others {
			foreign += i.holds
		}
		slices.SortStableFunc(sleepers, func(a, b *simInstance) int { return decide.LastUse(a.Instance).Compare(decide.LastUse(b.Instance)) })
		for own+foreign+l.s.awake > simMemory && len(sleepers) > 0 {
			own -= sleepers[0].holds
			evict, sleepers = append(evict, sleepers[0]), sleepers[1:]
		}
		if own+foreign+l.s.awake > simMemory {
			l.s.refused(l, sw, others)
			return nil, launcher.DoesNotFit(launcherapi.Fit{
				GPUUUID: gpu, Bound: launcherapi.BoundDeviceMemory, Needed: l.s.awake, Available: simMemory - min(simMemory, own+foreign), Limit: simMemory, Foreign: foreign,
			}, "%s does not fit on GPU %s: other processes hold %d", id, gpu, foreign)
		}
	}
	return evict, nil
}

// simNeighbour is an instance of another launcher.
type simNeighbour struct {
	*simInstance
	l *simLauncher
}

// beside are the instances that other launchers of the node have on a GPU.
func (l *simLauncher) beside(gpu string) (all []simNeighbour) {
	for _, key := range sortedKeys(l.s.launchers) {
		if other := l.s.launchers[key]; other != l && other.node == l.node && !other.dead {
			for _, i := range other.on([]string{gpu}) {
				all = append(all, simNeighbour{i, other})
			}
		}
	}
	return all
}

// hold has a swap that somebody asks for by hand have its turn on a GPU.
func (l *simLauncher) hold(gpu string, d time.Duration) {
	if l.turns[gpu] != nil {
		return
	}
	byHand := &simSwap{id: "by-hand"}
	l.turns[gpu] = byHand
	l.s.note("launcher %s: a swap by hand has its turn on %s", l.pod, gpu)
	l.s.after(d, func() {
		if l.turns[gpu] == byHand {
			delete(l.turns, gpu)
		}
	})
}

// simEviction is what a controller has evicted for an attempt.
type simEviction struct {
	inc     *incarnation
	victims []decide.Neighbour
}

// simObserver notes whom a controller process evicts, and kills it after a step.
type simObserver struct{ inc *incarnation }

func (o simObserver) Saw(seen Sight) {
	o.inc.s.locked(func() { o.inc.acted(seen) })
	if seen.Step.Do == decide.Evict && seen.Err == nil {
		o.inc.s.locked(func() {
			o.inc.s.evictions[seen.Observation.Record.SwapKey()] = simEviction{o.inc, seen.Step.Victims}
		})
	}
}

func (simObserver) Passed(string, []types.UID) {}

// refused looks at a swap for which memory is missing: nobody who is about to
// sleep, and known to be, has it.
func (s *sim) refused(l *simLauncher, sw *simSwap, others []simNeighbour) {
	before := sw.asked.Add(-detection)
	for _, i := range others {
		v := s.inc.views[i.l.key]
		if i.up.IsZero() || i.up.After(before) || sw.by != s.inc || v == nil || !v.Connected || v.since.After(before) || s.calm.After(before) {
			continue
		}
		at := slices.IndexFunc(s.records(), func(r simRecord) bool { return r.on.Name == i.l.pod && r.Instance == i.InstanceID })
		if at >= 0 {
			if left, leaves := s.leaves[s.records()[at].RequesterUID]; !leaves || left.After(before) {
				continue
			}
		}
		s.violated("a swap on launcher %s is asked for while %s of launcher %s is not at rest", l.pod, i.InstanceID, i.l.pod)
	}
}

// putOff looks at an attempt that came to nothing and is not made again at once:
// room was not made for it, and could not be.
func (s *sim) putOff(inc *incarnation, l *simLauncher, b podmeta.Binding) {
	sw := l.swaps[b.SwapKey()]
	if sw == nil || noRoom(sw.err) == nil || s.calm.After(time.Now().Add(-detection)) {
		return
	}
	if made := s.evictions[b.SwapKey()]; made.inc == inc {
		if !slices.ContainsFunc(made.victims, func(v decide.Neighbour) bool { return !s.goes(inc, l, v) }) {
			s.violated("attempt %d of %s is put off, and room is being made for it", b.Attempt, b.Name)
		}
		return
	}
	fit, asleep := noRoom(sw.err), uint64(0)
	for _, i := range l.beside(fit.GPUUUID) {
		key := i.l.key + "/" + i.InstanceID
		known := inc.views[i.l.key]
		steady := known != nil && known.Connected && time.Since(known.since) > detection && time.Since(i.since) > detection && time.Since(s.unbound[key]) > detection
		bound := slices.ContainsFunc(s.records(), func(r simRecord) bool { return r.on.Name == i.l.pod && r.Instance == i.InstanceID })
		if steady && !bound && i.State == string(launcher.Sleeping) && i.SwapID == "" {
			asleep += i.holds
		}
	}
	if asleep >= decide.Lacking(fit) {
		s.violated("attempt %d of %s is put off, and what it lacks is held by sleepers of other launchers that nobody needs", b.Attempt, b.Name)
	}
}

// goes says that an instance that was evicted is gone, or on its way.
func (s *sim) goes(inc *incarnation, l *simLauncher, v decide.Neighbour) bool {
	other := s.launchers[v.Launcher]
	if other == nil || other.all[v.InstanceID] == nil || other.all[v.InstanceID].State == string(launcher.Stopping) {
		return true
	}
	return inc.kept(l.node).calls.underWay("delete/"+v.Key(), other.rev)
}

// begins looks at a swap whose turn has come: one that nobody wants any more is
// called off while it waits.
func (s *sim) begins(l *simLauncher, sw *simSwap) {
	uid := types.UID(strings.SplitN(sw.record, ".", 2)[0])
	left, leaves := s.leaves[uid]
	_, connected := s.inc.knows(l, "")
	enough := 5 * detection // clients are seen off before
	if p := s.programs[uid]; leaves && connected && sw.by == s.inc && !p.hung && time.Since(left) > enough && time.Since(s.calm) > enough {
		s.violated("the turn of a swap for %s comes, which left long ago", uid)
	}
}
