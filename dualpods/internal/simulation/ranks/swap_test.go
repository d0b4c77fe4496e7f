package ranks

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	program "hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// swap is one that a launcher was asked for: what launcher/internal/core/swap does, with an instance
// that comes in and two halves.
type swap struct {
	l        *launcher
	id, key  string
	request  string
	req      launcherapi.SwapRequest
	ctx      context.Context // ends when the swap is to be undone or does not go on
	breakOff context.CancelCauseFunc
	progress []launcherapi.SwapProgress
	changed  chan struct{} // closed with the next change of what follows or of progress
	goAsked  bool
	refusal  error
	begun    bool
	atCommit bool
	commit   chan struct{}
	// committed means that a client has said commit, undoAsked that one has asked for the undo.
	committed, undoAsked, cancelled bool
	ended                           bool
	done                            bool // ended well
	over                            chan struct{}
	in                              *engine
	made                            bool // the swap creates in
	out, evict                      []*engine
	result                          launcherapi.SwapResult
	err                             error
	prepared                        bool // reached the phase go
	healthy                         bool // reached the phase commit
}

var (
	errCloses       = program.Unavailablef("the launcher is closing")
	errUndoAsked    = program.Conflictf("a client asked for the undo")
	errNotCommitted = program.EngineTimeoutf("no client said commit before the deadline of the swap")
	errCancelled    = program.Conflictf("the swap was cancelled while it waited")
)

const (
	swapLimit = 10 * time.Minute
	hold      = 30 * time.Second
)

func (s *swap) instance() string { return s.req.In.ID + s.req.In.InstanceID }
func (s *swap) gpu() string      { return s.req.GPUUUIDs[0] }

// ask is the call that begins a swap, or finds the one with that key.
func (l *launcher) ask(key string, req launcherapi.SwapRequest) (*swap, error) {
	text, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	if earlier := l.swaps[key]; earlier != nil {
		if earlier.request != string(text) {
			l.w.violated("one key, two requests", "%s: %s and %s", key, earlier.request, text)
			return nil, program.Conflictf("the key %s was used for another request", key)
		}
		return earlier, nil
	}
	switch {
	case l.early[key]:
		return nil, program.Conflictf("the swap was cancelled before it arrived")
	case req.In.InstanceID != "" && l.all[req.In.InstanceID] == nil:
		return nil, program.NotFound(req.In.InstanceID)
	}
	s := &swap{
		l: l, id: fmt.Sprintf("swap-%d", l.w.number()), key: key, request: string(text), req: req,
		changed: make(chan struct{}), commit: make(chan struct{}), over: make(chan struct{}),
	}
	limited, cancel := context.WithTimeoutCause(l.ctx, swapLimit, errNotCommitted)
	s.ctx, s.breakOff = context.WithCancelCause(limited)
	l.swaps[key] = s
	l.queue = append(l.queue, s)
	l.w.truth.asked(s)
	l.w.note("launcher %s: %s is asked for with %s", l.pod, s.id, key)
	go func() {
		defer cancel()
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		s.run()
	}()
	return s, nil
}

func (s *swap) changes() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *swap) phase(name string) {
	s.l.w.note("launcher %s: %s is in the phase %s", s.l.pod, s.id, name)
	s.progress = append(s.progress, launcherapi.SwapProgress{Type: launcherapi.ProgressStarted, Phase: name, SwapID: s.id, InstanceID: s.instance()})
	s.changes()
}

// run does the swap from its beginning to its end. The lock is held but while it waits.
func (s *swap) run() {
	err := s.admit()
	if err == nil && s.req.Prepare {
		err = s.awaitGo()
	}
	if err != nil {
		s.refusal = err
	} else {
		s.publish()
		if err = s.execute(); err != nil {
			s.undo()
		}
	}
	s.finish(err)
}

func (s *swap) finish(err error) {
	l := s.l
	if s.begun && err != nil && l.ctx.Err() != nil {
		err = program.EngineFailedf("the launcher died during the swap") // the next one says so
	}
	for _, e := range s.claimed() {
		if e != nil && e.claim == s {
			e.claim = nil
			if e.SwapID != "" && !e.gone {
				l.set(e, func(i *launcherapi.Instance) { i.SwapID = "" })
			}
		}
	}
	maps.DeleteFunc(l.turns, func(_ string, t *swap) bool { return t == s })
	l.queue = slices.DeleteFunc(l.queue, func(q *swap) bool { return q == s })
	s.ended, s.done, s.atCommit, s.err = true, err == nil, false, err
	if s.in != nil {
		view := s.in.Instance
		s.result.In = &view
	}
	l.w.note("launcher %s: %s is over: %v", l.pod, s.id, err)
	s.changes()
	close(s.over)
}

func (s *swap) claimed() []*engine { return append(append([]*engine{s.in}, s.out...), s.evict...) }

// waits waits for d or until the swap changes.
func (s *swap) waits(d time.Duration) {
	changed := s.changed
	s.l.w.mu.Unlock()
	t := time.NewTimer(d)
	select {
	case <-t.C:
	case <-changed:
	case <-s.ctx.Done():
	}
	t.Stop()
	s.l.w.mu.Lock()
}

// admit waits for the turn of the GPU and claims what the swap is about.
func (s *swap) admit() error {
	s.phase(launcherapi.PhaseAdmit)
	for {
		switch {
		case s.cancelled:
			return errCancelled
		case s.ctx.Err() != nil:
			return context.Cause(s.ctx)
		case !s.l.isBusy(s):
			s.l.turns[s.gpu()] = s
			s.l.queue = slices.DeleteFunc(s.l.queue, func(q *swap) bool { return q == s })
			return s.decide()
		}
		s.waits(s.l.w.Between("turn", 5*time.Millisecond, 50*time.Millisecond))
	}
}

func (l *launcher) isBusy(s *swap) bool {
	if l.down || l.turns[s.gpu()] != nil || slices.ContainsFunc(l.on(s.gpu()), (*engine).moves) {
		return true
	}
	for _, earlier := range l.queue {
		if earlier == s {
			break
		}
		if earlier.gpu() == s.gpu() {
			return true
		}
	}
	return false
}

// mostSleepers is how many sleeping instances a launcher has room for.
const mostSleepers = 2

func (s *swap) decide() error {
	l, id := s.l, s.instance()
	s.in, s.made = l.all[id], s.req.In.ID != ""
	switch {
	case s.in == nil && !s.made:
		return program.NotFound(id)
	case s.in != nil && s.made:
		return program.Existsf("Instance with ID %s already exists", id)
	case s.in != nil && (!s.in.is(program.Awake, program.Sleeping) || s.in.claim != nil):
		return program.Conflictf("instance %s is %s", id, s.in.State)
	case l.w.refusals > 0:
		l.w.refusals--
		return program.Conflictf("simulated: there is no room")
	}
	var sleepers []*engine
	for _, other := range sorted(l.all) {
		e := l.all[other]
		switch {
		case e == s.in || e.claim != nil:
		case e.is(program.Awake) && slices.Contains(e.GPUUUIDs, s.gpu()):
			if e.isWorker() && !e.confirmed {
				return program.Conflictf("instance %s may still load", e.InstanceID)
			}
			s.out = append(s.out, e)
		case e.is(program.Sleeping):
			sleepers = append(sleepers, e)
		}
	}
	// Those go that fell asleep first: the others may be wanted by swaps that wait.
	slices.SortStableFunc(sleepers, func(a, b *engine) int { return a.StateSince.Compare(b.StateSince) })
	s.evict = sleepers[:max(len(sleepers)-mostSleepers, 0)]
	for _, e := range s.claimed() {
		if e != nil {
			e.claim = s
		}
	}
	return nil
}

// awaitGo waits until a client says go, and looks at the instances again.
func (s *swap) awaitGo() error {
	s.prepared = true
	s.l.w.truth.prepared(s)
	s.phase(launcherapi.PhaseGo)
	for until := time.Now().Add(hold); !s.goAsked; s.waits(time.Until(until)) {
		switch {
		case s.cancelled:
			return errCancelled
		case s.ctx.Err() != nil:
			return context.Cause(s.ctx)
		case !time.Now().Before(until):
			return program.Conflictf("no client said go within %s", hold)
		}
	}
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	if s.in != nil && !s.in.is(program.Awake, program.Sleeping) {
		return program.Conflictf("instance %s has ended", s.instance())
	}
	return nil
}

func (s *swap) publish() {
	s.begun = true
	s.l.w.truth.begins(s)
	for _, e := range s.claimed() {
		if e != nil && !e.gone {
			s.l.set(e, func(i *launcherapi.Instance) { i.SwapID = s.id })
		}
	}
}

func (s *swap) execute() error {
	l := s.l
	for _, e := range s.out {
		s.phase(launcherapi.PhaseSleep)
		if err := l.fallAsleep(s.ctx, e); err != nil && !e.gone {
			return err
		}
	}
	for _, e := range s.evict {
		s.phase(launcherapi.PhaseEvict)
		l.stop(e)
	}
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	if err := s.bringIn(); err != nil {
		return err
	}
	if err := s.awaitCommit(); err != nil {
		return err
	}
	s.phase(launcherapi.PhaseOpen)
	s.in.confirmed = true
	l.w.truth.opens(s)
	return nil
}

func (s *swap) bringIn() error {
	l := s.l
	var err error
	switch {
	case s.made:
		s.phase(launcherapi.PhaseStart)
		s.in = l.newEngine(s)
		err = l.comeUp(s.ctx, s.in)
	case s.in.is(program.Awake):
	default:
		s.phase(launcherapi.PhaseWake)
		s.in.start = l.w.truth.startOf(s)
		err = l.wakeUp(s.ctx, s.in)
	}
	if err == nil && s.ctx.Err() != nil {
		err = context.Cause(s.ctx)
	}
	return err
}

func (l *launcher) newEngine(s *swap) *engine {
	e := &engine{l: l, changed: make(chan struct{}), met: map[int]*engine{}, claim: s, start: l.w.truth.startOf(s), Instance: launcherapi.Instance{
		InstanceID: s.instance(), State: string(program.Starting), GPUUUIDs: s.req.GPUUUIDs, Args: s.req.In.Args, Annotations: s.req.In.Annotations,
		SwapID: s.id, Rank: s.req.In.Rank, CreatedAt: time.Now(), StateSince: time.Now(), ModelFrom: launcherapi.ModelFromSource, ModelWhy: "simulated",
	}}
	e.Leased = l.takePorts(e.InstanceID)
	if !e.isWorker() {
		l.port++
		e.Port = 40000 + l.port
	}
	l.all[e.InstanceID] = e
	l.set(e, func(*launcherapi.Instance) {})
	l.w.note("launcher %s: %s is starting, rank %+v", l.pod, e.InstanceID, e.Rank)
	return e
}

// awaitCommit waits until a client says commit.
func (s *swap) awaitCommit() error {
	if s.req.Until == "" {
		return nil
	}
	s.healthy, s.atCommit = true, true
	s.phase(launcherapi.PhaseCommit)
	if g := s.l.w.group; g != nil {
		g.healthy[s.key] = true
	}
	if st := s.l.w.truth.startOf(s); st != nil && s.in.Rank.Index == 0 {
		s.l.w.after(0, func() { s.l.w.loseSwap(st, program.Awake) })
	}
	for !s.committed {
		switch {
		case s.ctx.Err() != nil:
			return context.Cause(s.ctx)
		case !s.in.is(program.Awake):
			return program.EngineFailedf("instance %s is lost", s.instance())
		}
		changed := s.in.changed
		s.l.w.mu.Unlock()
		select {
		case <-changed:
		case <-s.commit:
		case <-s.ctx.Done():
		}
		s.l.w.mu.Lock()
	}
	return nil
}

// undo restores the instances of the swap.
func (s *swap) undo() {
	l := s.l
	s.atCommit = false
	for l.down && l.ctx.Err() == nil {
		l.w.mu.Unlock()
		sleep(l.ctx, 50*time.Millisecond)
		l.w.mu.Lock()
	}
	s.phase(launcherapi.PhaseUndo)
	if l.ctx.Err() != nil {
		return
	}
	switch {
	case s.in == nil || s.in.gone:
	case s.made:
		l.stop(s.in)
	case s.in.is(program.Awake):
		_ = l.fallAsleep(l.ctx, s.in)
	}
	for _, e := range s.out {
		if e.is(program.Sleeping) {
			_ = l.wakeUp(l.ctx, e)
		}
	}
}
