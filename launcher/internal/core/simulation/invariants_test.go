package simulation

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// The invariants, by the names that a failing script shows.
const (
	onlyWhatFitsIsAwake  = "only what fits is awake"
	gatesTellTheTruth    = "gates are open only before those that are awake"
	nobodyEndsUnasked    = "no instance is ended that nobody asked to end"
	everyCallIsAnswered  = "every call is answered in time"
	everythingRests      = "everything comes to rest"
	gotThereIsSaid       = "who has got there is said to be there"
	listedIsTrue         = "what is listed is true"
	measuredIsTrue       = "what an engine says of itself agrees with its memory"
	doneIsTrue           = "done is true"
	refusedIsTrue        = "refused is true"
	undoneIsTrue         = "undone is true"
	undoFailedIsTrue     = "undo_failed is true"
	failsForAReason      = "a swap fails for a reason"
	refusedFirst         = "what an admission can know is refused before anything is touched"
	deletedIsLeft        = "who is deleted while it leaves has left"
	nobodyWaitsForNought = "no swap waits for nothing"
	nothingIsLeft        = "nothing is left over"
	filesAreTrue         = "files are true"
	revisionsGrow        = "revisions grow, also across lives"
	eventsTellTheList    = "events tell what the list tells"
	actedOnOnce          = "each key and each id is acted on once"
	modelsStay           = "a model that an engine reads has a lease, and stays"
	recoveryIsQuick      = "a recovery is quick"
	budgetsHold          = "sleepers keep within their budgets"

	startsHaveTheirTime = "a start has its time"
	actsAreRecorded     = "nothing is acted on before its record is written"

	launchersLeaveOthersAlone = "a launcher leaves the engines of another alone"
)

// check checks what must hold at every moment.
func (w *world) check() {
	w.checkAnswers()
	w.checkModels()
	if w.life == nil || w.life.isDead() {
		return
	}
	w.life.checkQuiet()
	all, revision := w.life.sup.List()
	w.seen.follow(w, all, revision)
	w.checkListed(all)
	w.checkKept(all)
	w.checkWaiting(all)
	w.checkHalves(all)
}

// checkAnswers looks for calls that are overdue.
func (w *world) checkAnswers() {
	w.mu.Lock()
	var overdue []*request
	for _, r := range w.requests {
		if r.open && time.Since(r.began) > r.within+leeway+max(diskTime, w.slack(r)) {
			r.open = false // told once
			overdue = append(overdue, r)
		}
	}
	w.mu.Unlock()
	for _, r := range overdue {
		w.m.wrong(everyCallIsAnswered, "no answer to %s after %s", r.step, time.Since(r.began))
	}
}

// grace is how long something may be otherwise than it should before that is wrong.
const grace = 5 * time.Second

// lasts says whether something has been so for longer than may be. What was not
// said at the last check begins anew.
type lasting struct {
	w   *world
	now map[string]time.Time
}

func (l *lasting) tooLong(format string, args ...any) (what string, too bool) {
	what = fmt.Sprintf(format, args...)
	since, known := l.w.late[what]
	if !known {
		since = time.Now()
	}
	l.now[what] = since
	return what, time.Since(since) > grace
}

// checkListed checks that the list tells of the processes, and soon.
func (w *world) checkListed(all []launcherapi.Instance) {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	last := &lasting{w, map[string]time.Time{}}
	defer func() { w.late = last.now }()
	listed := map[string]bool{}
	complain := func(invariant, format string, args ...any) {
		if what, too := last.tooLong("life %d: %s", w.deaths, fmt.Sprintf(format, args...)); too {
			w.m.violated(invariant, "%s, for more than %s", what, grace)
		}
	}
	for _, i := range all {
		p, state := w.m.procs[i.PID], launcher.State(i.State)
		if !state.Ended() || i.Port != 0 {
			listed[i.InstanceID] = true
		}
		w.checkRestarted(i, complain)
		switch {
		case p == nil:
		case p.alive() && (state == launcher.Stopped || state == launcher.Failed && i.Port == 0):
			w.m.violated(listedIsTrue, "%s is %s, and its process lives", i.InstanceID, i.State)
		case p.troubled:
		case p.isRestarted() && !p.alive() && (state == launcher.FallingAsleep || state == launcher.Waking): // that it has ended is no failure
			if w.gotThere(state, p) {
				complain(gotThereIsSaid, "%s is %s, and its process has ended", i.InstanceID, i.State)
			}
		case state == launcher.Awake && p.level > 0, state == launcher.Sleeping && p.level == 0, state != launcher.Stopping && !state.Ended() && !p.alive() && !w.m.ever["no descriptors"]:
			complain(listedIsTrue, "%s is %s, and its engine is not", i.InstanceID, i.State)
		case state == launcher.Failed && (i.Cause == "start_timeout" || i.Cause == "not_listening" && !p.ready) && i.StateSince.Sub(p.birth)-p.lost < limits.Start/2-leeway && (p.lost == 0 || w.deaths == 0): // the wait for its preloader may take the other half
			w.m.violated(startsHaveTheirTime, "%s was ended %s after its start", i.InstanceID, i.StateSince.Sub(p.birth))
		case w.gotThere(state, p):
			complain(gotThereIsSaid, "%s is %s, and its engine is beyond that", i.InstanceID, i.State)
		}
	}
	ids := map[string]bool{}
	for _, p := range w.m.living() {
		if ids[p.name] {
			w.m.violated(actedOnOnce, "two processes of %s live", p.name)
		}
		ids[p.name] = true
		if !listed[p.name] {
			complain(listedIsTrue, "a process of %s lives, and is not listed", p.name)
		}
	}
}

// gotThere says whether the engine has done all that the state waits for. The
// machine's lock is held.
func (w *world) gotThere(state launcher.State, p *proc) bool {
	if w.m.isSilent(p.gpus) {
		return false // the driver does not say what is free
	}
	if time.Since(p.silent) < grace {
		return false // the engine waits for the disk, or did until a moment ago
	}
	settled := true
	for uuid, held := range p.held {
		settled = settled && held < p.need[uuid]
	}
	if w.m.starved {
		return false // an instance that cannot be adopted yet is shown as it was written
	}
	if p.isRestarted() && state.Moving() && state != launcher.Starting && state != launcher.Stopping {
		return w.restartedGotThere(state, p)
	}
	switch state {
	case launcher.Starting:
		return p.ready && p.alive() // one that has ended is held to what is listed of it
	case launcher.FallingAsleep:
		return p.level > 0 && settled
	case launcher.Waking:
		return p.level == 0
	case launcher.Stopping:
		return !p.alive() && len(p.held) == 0 && !w.m.ever["no descriptors"]
	case launcher.Awake, launcher.Sleeping, launcher.Stopped, launcher.Failed:
	}
	return false
}

// restless lists what is not at rest.
func (w *world) restless() (out []string) {
	w.mu.Lock()
	for _, r := range w.requests {
		if r.open {
			out = append(out, r.String()+" is not answered")
		}
	}
	w.mu.Unlock()
	all, _ := w.life.sup.List()
	for _, i := range all {
		state := launcher.State(i.State)
		if state.Moving() || i.SwapID != "" || state.Ended() && i.Port != 0 {
			out = append(out, fmt.Sprintf("%s is %s, of swap %q", i.InstanceID, i.State, i.SwapID))
		}
	}
	if served, waiting := w.life.turns.Counts(); served+waiting > 0 {
		out = append(out, fmt.Sprintf("%d turns are taken, %d asked for", served, waiting))
	}
	for _, saved := range w.life.saved() {
		if !saved.Done {
			out = append(out, "a swap is not over")
		}
	}
	return out
}

// checkRest checks what must hold when everything has come to rest.
func (w *world) checkRest() {
	for _, what := range w.restless() {
		w.m.wrong(everythingRests, "%s", what)
	}
	if err := w.life.sup.WritePending(); err != nil {
		w.m.wrong(filesAreTrue, "what could not be written still cannot: %v", err)
	}
	all, _ := w.life.sup.List()
	w.left = all
	w.checkPorts(all)
	w.checkFiles(all)
	w.checkGates(all)
	w.checkLeases(all)
	w.checkSaved(all)
	w.checkHelpers()
	w.checkBudget(all)
	for _, g := range w.life.sup.GPUs().GPUs {
		if g.ReservedBytes > 0 || g.SwapID != "" {
			w.m.wrong(nothingIsLeft, "%d bytes of %s are reserved, by swap %q", g.ReservedBytes, g.UUID, g.SwapID)
		}
	}
	w.checkEngines(all)
	w.checkActedOnce()
	w.checkEndings()
}

// checkEngines checks that each engine is as it is listed, whatever was wrong with it
// before: what it did late must not have come true behind the launcher's back.
func (w *world) checkEngines(all []launcherapi.Instance) {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	for _, i := range all {
		p := w.m.procs[i.PID]
		if p == nil || !p.alive() || p.liar {
			continue
		}
		stale := w.m.ever["disk full"] || w.m.ever["disk stalls"] && p.troubled // what is written, and the engine may not have answered
		if stale && w.deaths > 0 {
			continue
		}
		if (i.State == string(launcher.Sleeping)) != (p.level > 0) {
			w.m.violated(listedIsTrue, "%s is %s at the end, and its engine is at level %d", i.InstanceID, i.State, p.level)
		}
		if p.inPart && !w.damaged["an instance"] && !w.m.ever["memory is lost"] && !w.m.ever["blind"] { // nobody can tell what it held before
			w.m.violated(measuredIsTrue, "%s is %s at the end, and its weights are awake", i.InstanceID, i.State)
		}
		measured := len(i.GPUBytes) > 0 // when it was awake; else nobody knows what it held before
		if p.crippled && measured && i.State == string(launcher.Awake) && !w.m.ever["blind"] && w.deaths == 0 {
			w.m.violated(measuredIsTrue, "%s is %s at the end, and has lost half of its memory", i.InstanceID, i.State)
		}
	}
}

// checkPorts checks that there are the ports of the instances, and no other.
func (w *world) checkPorts(all []launcherapi.Instance) {
	public, engines := map[int]bool{}, 0
	for _, i := range all {
		if i.Port != 0 {
			public[i.Port] = true
			engines++
		}
	}
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	for port, by := range w.m.ports {
		if !public[port] {
			w.m.violated(nothingIsLeft, "port %d is open still, by %s", port, by)
		}
	}
	if len(w.m.ports) != len(public) || len(w.m.private) != engines {
		w.m.violated(nothingIsLeft, "%d instances have %d public ports and %d of engines", len(public), len(w.m.ports), len(w.m.private))
	}
}

// checkFiles checks that there is a file for each instance, and of swaps for those
// with a key.
func (w *world) checkFiles(all []launcherapi.Instance) {
	var written []string
	for _, end := range []string{".json", ".doubted"} {
		files, err := filepath.Glob(filepath.Join(w.dir, "instances", "*"+end))
		if err != nil {
			panic(err)
		}
		for _, f := range files {
			written = append(written, strings.TrimSuffix(filepath.Base(f), ".json"))
		}
	}
	slices.Sort(written)
	if !slices.Equal(written, names(all)) {
		w.m.wrong(filesAreTrue, "there are files of instances %v, and the instances %v", written, names(all))
	}
	for _, saved := range w.life.saved() {
		if saved.Done && saved.Key == nil {
			w.m.wrong(filesAreTrue, "there is a file of a swap that is over and has no key")
		}
	}
}

// checkGates checks that a gate is open where one is awake, and nowhere else.
func (w *world) checkGates(all []launcherapi.Instance) {
	state := map[string]launcher.State{}
	for _, i := range all {
		state[i.InstanceID] = launcher.State(i.State)
	}
	w.life.mu.Lock()
	defer w.life.mu.Unlock()
	for g := range w.life.gates {
		if g.isOpen() != (state[g.id] == launcher.Awake) {
			w.m.wrong(gatesTellTheTruth, "%s is %q, and its gate is open: %v", g.id, state[g.id], g.isOpen())
		}
	}
}

// checkActedOnce checks that no swap made two processes, however often it was asked
// for with its key.
func (w *world) checkActedOnce() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.requests {
		if n := w.starts[r.request]; n > 1+w.asked(r.id) && r.isSwap() && !w.damaged["a swap"] {
			w.m.wrong(actedOnOnce, "%d processes were made for %s", n, r.step)
		}
	}
}

// asked counts the swaps to an instance that exists: each of them may start one again that
// has failed. The lock is held.
func (w *world) asked(id string) (n int) {
	for _, r := range w.requests {
		if r.what == "swap in sleeping" && r.id == id {
			n++
		}
	}
	return n
}

// checkGone checks that nothing is left when everything was deleted.
func (w *world) checkGone() {
	all, _ := w.life.sup.List()
	w.checkPorts(all)
	w.checkFiles(all)
	w.checkLeases(all)
	w.checkSaved(all)
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	for _, p := range w.m.living() {
		w.m.violated(nothingIsLeft, "a process of %s", p.name)
	}
	if len(all) > 0 {
		w.m.violated(nothingIsLeft, "instances %v", names(all))
	}
}
