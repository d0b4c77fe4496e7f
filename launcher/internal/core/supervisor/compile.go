package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/engines/rank"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Two instances of one model that start at once on different GPUs would both compile
// the same. So the second waits until the first is ready, and then finds what the first
// has cached. The launcher predicts from the arguments what an engine compiles. If the
// prediction is wrong, a start waits in vain, or two instances compile the same.
//
// An instance that waits never blocks another instance. It has the turn to compile from
// just before its process starts until it leaves the state starting. An adopted
// instance that is still starting has the turn too.

// compilesOf returns the text of what the engine of a plan compiles. Leased ports are no part of it:
// the next lease has others, and the engine compiles the same. So it comes from a plan with ports
// that are always the same.
func compilesOf(eng engine.Engine, r engine.Request, plan engine.Plan, spec launcherapi.InstanceSpec, ports []int) string {
	if len(ports) == 0 || plan.Compiles == "" {
		return plan.Compiles
	}
	same := make([]int, len(ports))
	for n := range same {
		same[n] = n + 1
	}
	spec, _, missing := rank.PutLateIn(spec, rank.LateValues(same, r.Rank))
	r.Options, r.Args = spec.Options, spec.Args
	nominal, wrong := eng.Plan(r)
	if missing != nil || wrong != nil { // the ports themselves matter
		return plan.Compiles
	}
	return nominal.Compiles
}

// compileKey returns the name of a text of what the engine of a plan compiles; empty: nothing
// that is cached.
func (s *Supervisor) compileKey(plan *engine.Plan, compiles string, devices []gpu.Device) string {
	if s.opts.Compiled == nil || compiles == "" || !s.opts.Compiled.Keeps(plan.Env()) {
		return ""
	}
	all := sha256.New()
	_, _ = fmt.Fprintf(all, "%q", compiles) // writing to a hash never fails
	for _, d := range devices {
		_, _ = fmt.Fprintf(all, " %q", d.Product)
	}
	return hex.EncodeToString(all.Sum(nil))
}

// takeCompileTurn gives an instance the turn to compile, if the result is not cached
// yet. If another instance has the turn, takeCompileTurn returns the reason to wait, and
// a channel that is closed when that other instance changes.
func (s *Supervisor) takeCompileTurn(i *instance) (reason string, changed <-chan struct{}) {
	name := i.facts.Compiles
	if name == "" || s.opts.Compiled.Has(name) {
		return "", nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.sorted() {
		if other != i && other.hasCompileTurn && other.state == launcher.Starting && other.facts.Compiles == name {
			return fmt.Sprintf("waiting for what instance %s compiles, which began to start at %s", other.facts.ID, other.since.UTC().Format(time.TimeOnly+"Z")), other.changed
		}
	}
	i.hasCompileTurn = true
	return "", nil
}

// awaitCompiler waits until an instance has the turn to compile or need not compile. It
// waits for at most half of the time for the start, and ends early with the operation.
func (s *Supervisor) awaitCompiler(i *instance, op *operation) {
	began := time.Now()
	ctx, stop := context.WithTimeout(op.ctx, op.limit/2)
	defer stop()
	reason, changed := s.takeCompileTurn(i)
	if reason == "" {
		return
	}
	for reason != "" && ctx.Err() == nil {
		s.noteWait(i, op, reason)
		select {
		case <-changed:
			reason, changed = s.takeCompileTurn(i)
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i.hasCompileTurn = true // also if the wait has timed out
	waited := time.Since(began)
	i.addTiming("compile_wait", waited)
	op.limit -= waited
}

// noteCompiled records that an engine is ready and has cached what it compiled.
func (s *Supervisor) noteCompiled(i *instance) {
	if i.facts.Compiles == "" || s.opts.Compiled == nil {
		return
	}
	note := func() error { return s.opts.Compiled.Note(i.facts.Compiles) }
	if err := boundedCall(s, "note what an engine has compiled", note, nil); err != nil {
		s.log.Warn("the next starts of the same model may wait for each other", "instance", i.facts.ID, "error", err)
	}
}
