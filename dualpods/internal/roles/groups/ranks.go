package groups

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// This file decides about servers over several launchers. The ranks of a server are the
// requesters of one replica of a role. They are started together: package binding has the
// launcher of each prepare its swap once the rank was told of the start, and the launchers change
// nothing before all have prepared. No clients come to the server before the entry is healthy.

// Server has the ranks of one replica of a role, the entry first.
type Server struct {
	Ranks   []*Member
	Resized bool // a Pod that stays is a rank of a server of another size
	Now     time.Time
}

// serverRule is a row of the table of servers.
type serverRule struct {
	row  string
	fits func(*Server, *Step) bool
}

// servers returns the servers of the ModelServing.
func (w *World) servers() (all []*Server) {
	for _, m := range w.Members {
		if !m.Wanted || !w.templatesOf(m.place).haveRanks() {
			continue
		}
		if m.isEntry() {
			all = append(all, &Server{Now: w.Now})
		}
		last := all[len(all)-1]
		last.Ranks, last.Resized = append(last.Ranks, m), last.Resized || m.Pod.Is != nil && !m.podLeaves() && w.rankChanged(m)
	}
	return all
}

// decide returns the step of the first row that fits.
func (s *Server) decide() *Step {
	for _, r := range ranks {
		step := &Step{Row: r.row, Of: s.Ranks[0], State: v1alpha1.GroupRunning}
		if r.fits(s, step) {
			return step
		}
	}
	panic("the last row always fits")
}

// ranks lists the rows for servers over several launchers.
var ranks = []serverRule{
	{"ranks are changed", func(s *Server, _ *Step) bool { // the table of changes says how far that is
		return s.any(func(m *Member) bool { return m.isBound() && m.Bound.Record.Change != nil })
	}},
	{"rank of another size", func(s *Server, step *Step) bool { // its Pod is deleted in this pass, and others of its start may be surplus
		return s.Resized && step.waitsForRanks("the Pods of the server of Pod %s were created for another number of ranks", s.entry())
	}},
	{"rank lost", func(s *Server, step *Step) bool {
		lost := s.first(s.isLost)
		return lost != nil && step.orders(Stop, s.all((*Member).isToStop)) && step.after(stopPause) &&
			step.waitsForRanks("rank %s of its server has ended or goes: the others are stopped", lost)
	}},
	{"ranks serve", func(s *Server, _ *Step) bool { return s.every((*Member).serves) }},
	{"rank ended, kept", func(s *Server, step *Step) bool {
		kept := s.first(func(m *Member) bool { return m.isBound() && m.staysEnded() })
		return kept != nil && step.waitsForRanks("the server of Pod %s has ended, and nothing restarts it", kept)
	}},
	{"rank not bound", func(s *Server, step *Step) bool {
		free := s.first(func(m *Member) bool { return !m.isBound() })
		return free != nil && step.waitsForRanks("the server waits until Pod %s is bound to a launcher", free)
	}},
	{"launcher silent", func(s *Server, step *Step) bool {
		silent := s.first(func(m *Member) bool { return !m.Bound.Known })
		return silent != nil && step.waitsForRanks("the launcher of Pod %s does not answer", silent)
	}},
	{"rank backs off", func(s *Server, step *Step) bool {
		later := s.first(func(m *Member) bool { return !m.isTold() && m.Bound.Record.RetryAt.After(s.Now) })
		return later != nil && step.after(later.Bound.Record.RetryAt.Sub(s.Now)) && step.waits(v1alpha1.GroupProgressing, v1alpha1.ReasonWaitsForRanks, later.backsOff())
	}},
	{"rank not ready", func(s *Server, step *Step) bool {
		later := s.first(func(m *Member) bool { return !m.isTold() && !m.IsReady })
		return later != nil && step.waitsForRanks("something is in the way of Pod %s: its status says what", later)
	}},
	{"instance left", func(s *Server, step *Step) bool {
		return s.mayTell() && !s.wakes() && step.orders(Remove, s.all((*Member).hasInstance)) &&
			step.waitsForRanks("instances of earlier servers are deleted, such as that of Pod %s", step.Ranks[0])
	}},
	{"rank not told", func(s *Server, step *Step) bool {
		return s.mayTell() && step.orders(Tell, s.all(func(m *Member) bool { return !m.isTold() })) &&
			step.waitsForRanks("all ranks are bound: Pod %s is to start", step.Ranks[0])
	}},
	{"all prepared", func(s *Server, step *Step) bool {
		return !s.any((*Member).prepares) && step.orders(Go, s.all((*Member).isPrepared)) && step.waitsForRanks("all ranks have prepared: they start, as Pod %s", step.Ranks[0])
	}},
	{"all healthy", func(s *Server, step *Step) bool {
		return s.every(func(m *Member) bool { return m.isHealthy() || m.serves() }) && step.orders(Commit, s.all((*Member).isHealthy)) &&
			step.waitsForRanks("all ranks are healthy, and serve soon, as Pod %s", step.Ranks[0])
	}},
	{"ranks start", func(s *Server, step *Step) bool {
		return step.waitsForRanks("the ranks of its server start: Pod %s does not serve yet", s.first(func(m *Member) bool { return !m.serves() }))
	}},
}

// backsOff says why the start of a rank failed, and when it is tried again.
func (m *Member) backsOff() string {
	record := m.Bound.Record
	return fmt.Sprintf("the start of Pod %s failed: %s; the next try is at %s", m.name(), cmp.Or(record.Failure, "no reason was given"), record.RetryAt.UTC().Format(time.RFC3339))
}

// stopPause is the time between two orders to stop ranks: a rank may come to a point at which it
// can be stopped without a change that an event tells of.
const stopPause = 500 * time.Millisecond

func (step *Step) waitsForRanks(format string, about *Member) bool {
	return step.waits(v1alpha1.GroupProgressing, v1alpha1.ReasonWaitsForRanks, fmt.Sprintf(format, about.name()))
}

// orders says which ranks the row orders what. It returns whether there are any.
func (step *Step) orders(do Action, ranks []*Member) bool {
	step.Do, step.Ranks = do, ranks
	return len(ranks) > 0
}

func (s *Server) entry() *Member { return s.Ranks[0] }

func (s *Server) any(is func(*Member) bool) bool { return slices.ContainsFunc(s.Ranks, is) }

func (s *Server) every(is func(*Member) bool) bool {
	return !s.any(func(m *Member) bool { return !is(m) })
}

func (s *Server) all(are func(*Member) bool) (ranks []*Member) {
	for _, m := range s.Ranks {
		if are(m) {
			ranks = append(ranks, m)
		}
	}
	return ranks
}

// first returns the first such rank; nil: there is none.
func (s *Server) first(is func(*Member) bool) *Member {
	if at := slices.IndexFunc(s.Ranks, is); at >= 0 {
		return s.Ranks[at]
	}
	return nil
}

// isLost reports whether the ranks that are at work do so in vain, since this one does not take
// part in their start, or does not any more.
func (s *Server) isLost(m *Member) bool {
	others := func(o *Member) bool { return o != m && o.isAtWork() }
	switch {
	case !m.isBound():
		return s.any(others)
	case !m.Bound.Known:
		return false
	case m.isTold():
		strayed := m.isAtWork() && (m.Server.Group != s.group() || s.entry().isTold() && m.Server.Entry != s.entry().Server.Entry)
		return strayed || s.isLate(m) || (m.hasEnded() || s.hasForgotten(m)) && s.any(others)
	default:
		return s.any(func(o *Member) bool { return o != m && o.hasBegun() })
	}
}

// isLate reports whether a rank is about to start although the entry is awake, so that all ranks had
// loaded once. The entry never meets another engine in place of one of them. A launcher begins again
// if it has lost the swap, or has forgotten its key. The report of the entry's launcher counts: a
// process that has just begun hears the phases of earlier swaps one after the other.
func (s *Server) isLate(m *Member) bool {
	e := s.entry()
	return m != e && e.isTold() && e.isIn(launcher.Awake) && m.Bound.Known && !m.hasInstance() && m.inPhase(launcherapi.PhaseAdmit, launcherapi.PhaseGo)
}

// hasForgotten reports whether the launcher of a rank has lost what it had begun for the start, since its
// container was started again. It may begin again when it is asked by the same key, but the ranks that have
// met the engine that was lost never meet another one in its place.
func (s *Server) hasForgotten(m *Member) bool {
	return podmeta.ServerRestarts(m.Bound.Launcher) != m.Server.Restarts && !s.every((*Member).serves)
}

// group names the start that the entry takes part in next.
func (s *Server) group() string {
	if e := s.entry(); e.isBound() {
		return e.Bound.Record.SwapKey()
	}
	return ""
}

// mayTell reports whether ranks were not told of the start yet.
func (s *Server) mayTell() bool { return s.any(func(m *Member) bool { return !m.isTold() }) }

// wakes reports whether the sleeping instances of the ranks are those of one server, so that they
// can be woken together; also if there is no instance. Of two ranks on one launcher, the swap of one may
// have claimed the sleeper of the other to evict it, at each attempt. So ranks whose attempts keep failing
// start anew.
func (s *Server) wakes() bool {
	if s.any(func(m *Member) bool { return m.Bound.Record.Failures >= failuresInVain }) {
		return !s.any((*Member).hasInstance)
	}
	return s.sleepTogether(func(m *Member) *launcherapi.Instance { return m.Bound.Instance })
}

// failuresInVain is how often in a row the attempt of a rank fails before its server is not woken any more,
// but starts anew.
const failuresInVain = 2

// sleepTogether reports whether the instances of the ranks sleep that instance returns, and were the
// ranks of one server; also if there is none.
func (s *Server) sleepTogether(instance func(*Member) *launcherapi.Instance) bool {
	if !s.any(func(m *Member) bool { return instance(m) != nil }) {
		return true
	}
	of := func(m *Member) launcherapi.Rank {
		if i := instance(m); i != nil && i.Rank != nil {
			return *i.Rank
		}
		return launcherapi.Rank{}
	}
	first := of(s.entry())
	return s.every(func(m *Member) bool {
		i, is := instance(m), of(m)
		return i != nil && launcher.State(i.State) == launcher.Sleeping && is.Index == m.pod && is.Group == first.Group && is.Entry == first.Entry
	})
}

// isBound reports whether a rank has a Pod that stays, with a record.
func (m *Member) isBound() bool {
	return m.Pod.Is != nil && !m.podLeaves() && !podmeta.Finished(m.Pod.Is) && m.Bound != nil
}

// isTold reports whether a rank was told of the start by its present attempt.
func (m *Member) isTold() bool { return m.isBound() && m.namesAttempt() }

// namesAttempt reports whether the start that a rank was told of last is by its present attempt.
func (m *Member) namesAttempt() bool { return m.Server.Attempt == m.Bound.Record.SwapKey() }

func (m *Member) hasInstance() bool { return m.Bound.Instance != nil }

func (m *Member) isIn(states ...launcher.State) bool {
	return m.Bound.Instance != nil && slices.Contains(states, launcher.State(m.Bound.Instance.State))
}

// inPhase reports whether the swap of a rank is in one of these phases.
func (m *Member) inPhase(phases ...string) bool {
	return m.Bound.Swap.ID != "" && slices.Contains(phases, m.Bound.Swap.Phase)
}

// prepares reports whether a rank was told of the start, and has not prepared yet.
func (m *Member) prepares() bool {
	return !m.isAtWork() || m.inPhase(launcherapi.PhaseAdmit)
}

// isPrepared reports whether a rank waits until the others have prepared.
func (m *Member) isPrepared() bool { return m.isTold() && m.inPhase(launcherapi.PhaseGo) }

// hasBegun reports whether a rank takes its turn on the GPUs, or has.
func (m *Member) hasBegun() bool {
	return m.isAtWork() && !m.inPhase(launcherapi.PhaseAdmit, launcherapi.PhaseGo)
}

// works reports whether a rank has a swap under way, or an instance that starts, wakes or is awake.
func (m *Member) works() bool {
	return m.Bound.Swap.ID != "" || m.isIn(launcher.Starting, launcher.Waking, launcher.Awake)
}

// isAtWork reports whether a rank has something that can be stopped.
func (m *Member) isAtWork() bool { return m.isTold() && m.works() }

// isToStop reports whether a rank has something that is to be stopped as its server ends. That is
// also what the rank of a Pod has that leaves: it does not sleep without the other ranks.
func (m *Member) isToStop() bool {
	leaves := !m.isBound() && m.Bound != nil && m.Bound.Known
	return (m.isBound() || leaves) && m.namesAttempt() && m.works() && !m.inPhase(launcherapi.PhaseUndo)
}

// isHealthy reports whether a rank waits until the others are healthy.
func (m *Member) isHealthy() bool { return m.isTold() && m.inPhase(launcherapi.PhaseCommit) }

// serves reports whether the swap of a rank has ended well. If its launcher does not answer, the
// Pod tells.
func (m *Member) serves() bool {
	if m.isTold() && !m.Bound.Known {
		return podmeta.Ready(m.Pod.Is)
	}
	return m.isTold() && m.Bound.Swap.ID == "" && m.isIn(launcher.Awake) && m.Bound.Instance.SwapID == ""
}

// hasEnded reports whether the instance of a rank has ended, or is being stopped, or stays as it ended, or
// its swap is being undone.
func (m *Member) hasEnded() bool {
	return m.isIn(launcher.Failed, launcher.Stopped, launcher.Stopping) || m.inPhase(launcherapi.PhaseUndo) || m.staysEnded()
}
