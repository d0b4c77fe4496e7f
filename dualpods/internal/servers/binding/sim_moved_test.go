package binding

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
)

// movedOrLying has kubelets give some requesters other GPUs before their programs run, and programs
// name GPUs of others after their records were written by the kubelet's word, in some scripts.
func (s *sim) movedOrLying(script []simEvent) []simEvent {
	if !s.chance("moved or lying", 10) {
		return script
	}
	at := s.between("moved or lying at", 0, script[len(script)-1].at)
	for range 1 + s.draw("moved or lying times", 3) {
		what := []string{"create and move", "create a liar"}[s.draw("moved or lying which", 2)]
		script = append(script, simEvent{at, what, s.draw("moved or lying arg", 1<<20)})
		at += s.between("moved or lying again", time.Millisecond, 20*time.Second)
	}
	return inOrder(script)
}

// createLate makes a requester for one GPU whose container runs seconds after the kubelet has
// admitted its Pod.
func (s *sim) createLate(e simEvent) (name string) {
	s.latePods++
	return s.create(int(e.arg%simModels), 1, e.arg/64%3 == 0, e.arg/256%4 == 0)
}

// move is what a kubelet does that was started again and has lost what it gave a Pod whose
// container has not run yet: it admits the Pod anew, with other GPUs if there are some.
func (s *sim) move(name string) {
	pod := s.api.pods[name]
	if pod == nil {
		return
	}
	p := s.programs[pod.UID]
	if p == nil || p.ran() || running(pod) || p.dead || s.knows[p.node][p.pod] != p {
		return
	}
	free := s.free(p.node)
	if len(free) < len(p.gpus) {
		return
	}
	p.was, p.gpus = p.gpus, free[:len(p.gpus)]
	s.note("the kubelet of %s admits %s anew, with %v", p.node, p.uid, p.gpus)
	s.after(s.between("scheduler", time.Millisecond, 20*time.Millisecond), s.schedule)
}

// hadBefore reports whether these are the GPUs that the kubelet told of before it gave a requester
// others, and that may count still: it is asked again once the program runs.
func (p *simProgram) hadBefore(gpus []string) bool {
	return p.was != nil && decide.SameSet(p.was, gpus) && (!p.ran() || time.Since(p.began) < justNow)
}

// movedAway reports whether a record is of GPUs that the kubelet has given to another requester
// since. It stays until the program runs, and its model is seen to sleep.
func (s *sim) movedAway(gpus []string) bool {
	return slices.ContainsFunc(s.records(), func(r simRecord) bool {
		p := s.programs[r.RequesterUID]
		return p != nil && p.was != nil && decide.SameSet(p.was, r.GPUs) && overlap(r.GPUs, gpus)
	})
}

func TestRequesterThatWasGivenOtherGPUsBeforeItRanIsServedOnThem(t *testing.T) {
	for _, seed := range seedsOfComposed {
		out := simulate(t, seed, []simEvent{{at: 3 * time.Second, what: "create and move"}}, decide.Tables, false)
		assert.Empty(t, out.wrong, "seed %d", seed)
		assert.Equal(t, 1, out.served, "seed %d", seed)
	}
}

func TestProgramThatNamesOtherGPUsThanItsRecordGetsNoRecordOfThem(t *testing.T) {
	for _, seed := range seedsOfComposed {
		out := simulate(t, seed, []simEvent{{at: 3 * time.Second, what: "create a liar"}}, decide.Tables, false)
		assert.Empty(t, out.wrong, "seed %d", seed)
	}
}
