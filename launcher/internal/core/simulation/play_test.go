package simulation

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// played is what a script came to.
type played struct {
	wrong  []string // what must never be, and was: the invariant's name, then what happened
	trace  []string // where it was asked for
	log    string   // of the launcher
	deaths int
	starts map[string]int // processes made, by the request that they were made for
	left   []launcherapi.Instance
}

// play plays a script from its beginning to when all is at rest, and then deletes
// everything. It checks the invariants all along.
func play(t *testing.T, s script, traced bool) (out played) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s.seed)
		w.budget, w.budgets, w.traced = s.budget, []launcherapi.Budget{s.budget}, traced
		w.play(s)
		out = played{wrong: w.m.broken, trace: w.trace, log: w.log.String(), deaths: w.deaths, starts: w.starts, left: w.left}
	})
	return out
}

func (w *world) play(s script) {
	end := s.end
	if end == 0 && len(s.steps) > 0 {
		end = s.steps[len(s.steps)-1].at + 2*time.Second
	}
	w.end = w.began.Add(end)
	if slices.ContainsFunc(s.steps, func(s step) bool { return s.stored != "" }) {
		w.pullModel()
	}
	w.bear(0)
	for _, s := range s.steps {
		w.waitUntil(w.began.Add(s.at))
		w.note("— %s", s)
		w.do(s)
		synctest.Wait()
		w.check()
	}
	w.waitUntil(w.end)
	w.noMoreKills()
	w.settle()
	w.wakeEach()
	w.deleteEverything()
	w.over()
}

func (w *world) do(s step) {
	if act, ok := acts[s.what]; ok {
		act(w, s)
		return
	}
	r := &request{step: s}
	w.mu.Lock()
	w.requests = append(w.requests, r)
	w.mu.Unlock()
	if s.odd != "" {
		w.m.mu.Lock()
		w.m.odd[s.request] = s.odd
		w.m.mu.Unlock()
	}
	w.ask(r)
}

// checkEvery is the time between two checks while nothing happens.
const checkEvery = 500 * time.Millisecond

// waitUntil lets time pass, checks the invariants meanwhile, and starts a launcher
// that was killed again.
func (w *world) waitUntil(at time.Time) {
	for time.Now().Before(at) {
		next := min(checkEvery, time.Until(at))
		var died <-chan struct{}
		if w.life != nil {
			died = w.life.died
		} else {
			next = min(next, max(time.Until(w.back), time.Nanosecond))
		}
		select {
		case <-time.After(next):
		case <-died:
		}
		synctest.Wait()
		w.check()
		switch {
		case w.life != nil && w.life.isDead():
			w.bury()
		case w.life == nil && !time.Now().Before(w.back):
			if stalls := w.untilDiskAnswers(); stalls > 0 { // it began while the launcher was dead
				w.back = time.Now().Add(stalls)
				continue
			}
			w.bear(w.down.again)
		}
	}
}

// bear starts the launcher, to be killed at its n-th call; 0: at none.
func (w *world) bear(n int) {
	w.note("the launcher starts")
	w.down.again = 0
	w.configure()
	w.life = w.begin(n, w.down.after)
	w.askAgain()
}

// bury takes away what is left of a life.
func (w *world) bury() {
	w.note("the launcher is dead")
	w.deaths++
	w.died = append(w.died, time.Now())
	w.seen.hearLast(w)
	w.life.bury()
	w.life, w.back = nil, time.Now().Add(max(w.down.limit, w.untilDiskAnswers(), w.untilEnginesAnswer(), time.Millisecond)) // the launcher starts when its disk answers
	w.damageFile(w.down.damage)
	w.shiftRecords()
}

// closeLauncher ends the launcher as a SIGTERM does that leaves the engines.
func (w *world) closeLauncher() {
	if w.life == nil || w.life.isDead() {
		return
	}
	began := time.Now()
	w.life.mu.Lock()
	w.life.closing = true
	w.life.mu.Unlock()
	ctx, stop := context.WithTimeout(context.Background(), swapsTime)
	defer stop()
	w.life.swaps.Close(ctx)
	w.life.over(errDead) // the server cuts the calls that are left
	patience, stop := context.WithTimeout(context.Background(), closeTime)
	defer stop()
	if err := w.life.sup.Close(patience, false); err != nil && !w.life.isDead() {
		w.m.wrong(nothingIsLeft, "the launcher cannot close: %v", err)
	}
	w.life.forker.close()
	if took := time.Since(began); took > swapsTime+limits.Drain+leeway+w.diskTime() {
		w.m.wrong(everyCallIsAnswered, "the launcher took %s to close", took)
	}
	w.life.kill()
}

// swapsTime bounds the wait for swaps at a close.
const swapsTime = 20 * time.Second

// closeTime is how long the supervisor may wait for instances at a close, as package daemon
// has it.
var closeTime = limits.Drain + limits.StopGrace + limits.Memory

func (w *world) noMoreKills() {
	w.down = step{limit: 10 * time.Millisecond}
	if w.life != nil {
		w.life.killAtCall(0, false)
	}
}

// restTime bounds the time after the last fault until all is at rest: the longest
// swap, and the time to undo it.
const restTime = 300 * time.Second

// settle waits until everything has come to rest, and checks what must hold then.
func (w *world) settle() {
	for until := time.Now().Add(restTime); time.Now().Before(until); {
		if !w.isAtRest() {
			w.waitUntil(time.Now().Add(time.Second))
			continue
		}
		w.waitUntil(time.Now().Add(15 * time.Second)) // what comes after the rest
		if w.isAtRest() {                             // no engine did late what it was asked
			break
		}
	}
	if w.everWrong("memory is lost") {
		w.waitUntil(time.Now().Add(3 * limits.Memory))
	}
	w.checkRest()
}

func (w *world) isAtRest() bool { return w.life != nil && !w.life.isDead() && len(w.restless()) == 0 }

// wakeEach swaps each sleeper in, now that nothing is wrong any more, where no engine was
// ever odd: it is awake then.
func (w *world) wakeEach() {
	if len(w.m.broken) > 0 || w.everTroubled() {
		return
	}
	all, _ := w.life.sup.List()
	for _, i := range all {
		if i.State != string(launcher.Sleeping) || i.Engine == restartedName && w.wasTroubled(i.InstanceID) {
			continue
		}
		r := &request{step: step{what: "swap in sleeping", request: "last of " + i.InstanceID, id: i.InstanceID}}
		w.mu.Lock()
		w.requests = append(w.requests, r)
		w.mu.Unlock()
		w.ask(r)
		w.awaitAnswer(r)
		a := r.answers[0]
		gone := launcher.CodeOf(a.err) == launcherapi.CodeNotFound // evicted by the swap before
		// One whose memory did not come back in time is taken to hold it when it sleeps,
		// until it has slept again.
		full := launcher.CodeOf(a.err) == launcherapi.CodeDoesNotFit && (w.everBudgeted(func(b launcherapi.Budget) bool { return b != launcherapi.Budget{} }) || w.everWrong("memory is lost"))
		if a.result.Outcome != launcherapi.OutcomeDone && !gone && !full {
			w.m.wrong(failsForAReason, "%s cannot be brought in at the end: %s", i.InstanceID, a)
		}
	}
}

func (w *world) awaitAnswer(r *request) {
	for r.isOpen(w) {
		w.waitUntil(time.Now().Add(time.Second))
	}
}

// everTroubled says whether something was ever wrong with a living engine.
func (w *world) everTroubled() bool {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	return slices.ContainsFunc(w.m.living(), func(p *proc) bool { return p.troubled })
}

// deleteEverything deletes all that there is, and checks that nothing is left, by
// using each GPU whole once more.
func (w *world) deleteEverything() {
	if len(w.m.broken) > 0 {
		return
	}
	r := &request{step: step{what: "delete all", request: "the last"}}
	w.requests = append(w.requests, r)
	w.ask(r)
	w.awaitAnswer(r)
	w.waitUntil(time.Now().Add(time.Second))
	w.checkGone()
	if len(w.m.broken) > 0 {
		return
	}
	for _, uuid := range []string{"g0", "g1"} {
		s := step{request: "probe of " + uuid, gpus: []string{uuid}, share: "0.95"}
		if _, err := w.life.sup.Create(launcher.CreateRequest{ID: "probe-" + uuid, Spec: s.spec()}); err != nil {
			w.m.wrong(nothingIsLeft, "GPU %s cannot be used again: %v", uuid, err)
		}
		if _, err := w.life.sup.Delete(context.Background(), "probe-"+uuid); err != nil {
			w.m.wrong(nothingIsLeft, "the probe of GPU %s cannot be deleted: %v", uuid, err)
		}
	}
}

func (r *request) isOpen(w *world) bool { w.mu.Lock(); defer w.mu.Unlock(); return r.open }

// over ends the launcher and all processes.
func (w *world) over() {
	if w.life != nil {
		w.closeLauncher()
		w.life.bury()
		w.life = nil
	}
	w.m.mu.Lock()
	for _, p := range w.m.living() {
		p.end(signalled(syscall.SIGKILL))
	}
	w.m.starved = false
	w.m.endHelpers("")
	w.m.mu.Unlock()
	time.Sleep(10 * time.Minute) // until the machine has come to rest, too
}

// names are those of instances, sorted.
func names(all []launcherapi.Instance) (ids []string) {
	for _, i := range all {
		ids = append(ids, i.InstanceID)
	}
	slices.Sort(ids)
	return ids
}
