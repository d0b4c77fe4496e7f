package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/swap"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file has swaps in two halves, and the clients that say go, commit and undo, or die before
// they do.

const (
	goIsAwaited     = "a prepared swap moves nothing before somebody says go"
	commitIsAwaited = "no gate opens before somebody says commit"
	commitHolds     = "what is committed is done"
)

// words are what clients say to swaps.
var words = map[string]func(*swap.Coordinator, string) (*swap.Run, error){
	"go": (*swap.Coordinator).Go, "commit": (*swap.Coordinator).Commit, "undo": (*swap.Coordinator).Undo,
}

// drawHalves lets some swaps wait for their clients, in half of all scripts.
func (d *drawing) drawHalves(steps []step) []step {
	if d.n(2) == 0 {
		return steps
	}
	say := func(s step, what string, most time.Duration) {
		steps = append(steps, step{at: s.at + d.between(0, most)>>d.n(6), what: what, request: s.request})
	}
	for n, s := range slices.Clone(steps) {
		if s.what != "swap in new" && s.what != "swap in sleeping" && s.what != "swap out" || d.n(3) == 0 {
			continue
		}
		s.until = s.what != "swap out" && d.n(4) > 0
		if d.n(2) == 0 {
			s.hold = one(d, 0, 2*time.Second, 10*time.Second)
			s.prepare = true
			for range one(d, 0, 1, 1, 1, 1, 2) {
				say(s, "go", 12*time.Second)
			}
		}
		if s.until {
			for range one(d, 0, 1, 1, 1, 1, 2) {
				say(s, "commit", 40*time.Second)
			}
			if d.n(4) == 0 {
				say(s, "undo", 40*time.Second)
			}
		}
		steps[n] = s
	}
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	return steps
}

// saying is what clients have said to a swap, by its id.
type saying struct {
	goes, commit, undo bool
	held               bool // the commit was answered
}

// say has a client say a word to its swap, which an earlier life may have begun.
func (w *world) say(what string, r *request) {
	l := w.life
	if r == nil || l == nil || l.isDead() {
		return
	}
	w.mu.Lock()
	id := r.swapID
	if id == "" {
		w.mu.Unlock()
		return
	}
	s := w.said[id]
	if s == nil {
		s = &saying{}
		w.said[id] = s
	}
	earlier := s.commit
	s.goes, s.commit, s.undo = s.goes || what == "go", s.commit || what == "commit", s.undo || what == "undo"
	w.mu.Unlock()
	go func() {
		_, err := words[what](l.swaps, id)
		w.note("%s to %s: %v", what, r.request, err)
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case what != "commit":
		case err == nil:
			s.held = true
		case launcher.CodeOf(err) == launcherapi.CodeConflict:
			s.commit = earlier
		}
	}()
}

// saidTo returns what clients have said to the latest swap of a request. The lock is held.
func (w *world) saidTo(r *request) saying {
	if s := w.said[r.swapID]; s != nil {
		return *s
	}
	return saying{}
}

// checkHalves checks that swaps wait for their clients.
func (w *world) checkHalves(all []launcherapi.Instance) {
	open := map[string]bool{}
	w.life.mu.Lock()
	for g := range w.life.gates {
		if g.isOpen() {
			open[g.id] = true
		}
	}
	w.life.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.requests {
		said := w.saidTo(r)
		if id, touched := w.seen.touchedBy[r.swapID]; r.prepare && !said.goes && touched {
			w.m.wrong(goIsAwaited, "%s moves %s", r.step, id)
		}
		if !r.until || said.commit || w.damaged["a swap"] || w.damaged["an instance"] {
			continue
		}
		for _, i := range all {
			if i.InstanceID == r.id && i.SwapID == r.swapID && open[i.InstanceID] && w.broughtIn(r, i) {
				w.m.wrong(commitIsAwaited, "%s has opened the gate of %s", r.step, i.InstanceID)
			}
		}
	}
}

// broughtIn says whether a swap has made or woken an instance that it has claimed: it was made
// for the request, or the swap has begun to wake it. The lock is held.
func (w *world) broughtIn(r *request, i launcherapi.Instance) bool {
	w.m.mu.Lock()
	p := w.m.procs[i.PID]
	made := p != nil && p.model == r.request
	w.m.mu.Unlock()
	if made || r.run == nil || r.l != w.life {
		return made
	}
	now, stop := context.WithCancel(context.Background())
	stop()
	wakes := false
	_ = r.run.Follow(now, func(p launcherapi.SwapProgress) error { // what has happened until now
		wakes = wakes || p.Phase == launcherapi.PhaseWake
		return nil
	})
	return wakes
}

// halvesAreTrue checks the answer to a swap that waits for its client.
func (w *world) halvesAreTrue(r *request, a answer) {
	if !r.until {
		return
	}
	w.mu.Lock()
	said := w.saidTo(r)
	w.mu.Unlock()
	lost := w.damaged["a swap"] || slices.ContainsFunc(w.parties(r, a), func(id string) bool { return w.wasTroubled(id) || w.wasDeleted(id) })
	switch {
	case a.result.Outcome == launcherapi.OutcomeDone && !said.commit:
		w.m.wrong(commitIsAwaited, "%s is done", r.step)
	case a.err != nil && a.result.Outcome != launcherapi.OutcomeInterrupted && said.held && !lost:
		w.m.wrong(commitHolds, "%s was committed, and is answered %s", r.step, a)
	}
}

// asksForItsUndo says whether a swap fails because its client has said undo, or nobody commit.
func (w *world) asksForItsUndo(r *request, code string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.saidTo(r)
	return r.until && (said.undo || code == launcherapi.CodeEngineTimeout)
}

// TestAKillAtEachCallOfASwapInTwoHalves kills the launcher at every call that it makes into the
// world while its client prepares a swap, says go, and then says commit or undo, or dies before that.
// All is as before then, or as after the swap; as after it if the commit was answered.
func TestAKillAtEachCallOfASwapInTwoHalves(t *testing.T) {
	for _, last := range []string{"", "commit", "one commit", "undo"} {
		for _, after := range []bool{false, true} {
			for n, more := 1, true; more; n++ {
				require.Less(t, n, 10_000)
				s := script{seed: 1, end: 90 * time.Second, steps: []step{
					{what: "create", request: "first", id: "a", gpus: []string{"g0"}, share: "0.9"},
					{at: 10 * time.Second, what: "kill", n: n, after: after, limit: time.Second},
					{at: 10*time.Second + 1, what: "swap in new", request: "second", keyed: true, persist: true, prepare: true, until: true, id: "b", gpus: []string{"g0"}, share: "0.9"},
					{at: 15 * time.Second, what: "go", request: "second"},
				}}
				switch last {
				case "one commit": // then the client dies
					s.steps = append(s.steps, step{at: 30 * time.Second, what: "commit", request: "second"})
				case "commit", "undo": // until it is answered
					for at := 30 * time.Second; at < 40*time.Second; at += 3 * time.Second {
						s.steps = append(s.steps, step{at: at, what: last, request: "second"})
					}
				}
				out := play(t, s, false)
				more = out.deaths > 0
				var left []string
				for _, i := range out.left {
					left = append(left, i.InstanceID+" "+i.State)
				}
				if len(left) == 2 && (last == "commit" || last == "one commit") {
					assert.Equal(t, []string{"a " + string(launcher.Sleeping), "b " + string(launcher.Awake)}, left)
				} else {
					assert.Equal(t, []string{"a " + string(launcher.Awake)}, left, "%q, killed at call %d", last, n)
				}
				if !more {
					assert.Len(t, left, map[string]int{"": 1, "undo": 1, "commit": 2, "one commit": 2}[last], "nobody was killed")
				}
				if !assert.Empty(t, out.wrong, "%q, killed at call %d, after its effect: %v", last, n, after) {
					t.Log(out.log)
				}
			}
		}
	}
}

func halvesOf(seed uint64) *drawing {
	return &drawing{Rand: rand.New(rand.NewPCG(seed, 0x68616c))}
}

func (s step) halves() string {
	text := ""
	if s.prepare {
		text = fmt.Sprintf("prepared for %s", s.hold)
	}
	if s.until {
		text += " until healthy"
	}
	return text
}
