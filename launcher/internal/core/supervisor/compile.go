package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
)

// Two instances of one model that are started at once on different GPUs would compile
// the same, each for itself. The second waits until the first is ready: then it finds
// what the first has kept. What is told from the arguments alone may be wrong: then one
// start waits for nothing, or two compile the same.
//
// Nobody waits for who waits: an instance has the turn to compile from just before its
// process is made, and has it no more when it is not starting any longer, however that
// came about. An instance that an earlier life of the launcher has started has it too.

// compiles names what the engine of a plan compiles; empty: nothing that is kept.
func (s *Supervisor) compiles(plan *engine.Plan, devices []gpu.Device) string {
	if s.opts.Compiled == nil || plan.Compiles == "" || !s.opts.Compiled.Keeps(plan.Env()) {
		return ""
	}
	all := sha256.New()
	_, _ = fmt.Fprintf(all, "%q", plan.Compiles) // a hash takes all
	for _, d := range devices {
		_, _ = fmt.Fprintf(all, " %q", d.Product)
	}
	return hex.EncodeToString(all.Sum(nil))
}

// compilesFirst gives an instance the turn to compile. Where another has it, and no
// engine has ever compiled the same, it says so in words, and gives a channel that is
// closed when something happens to that other one.
func (s *Supervisor) compilesFirst(i *instance) (reason string, changed <-chan struct{}) {
	name := i.facts.Compiles
	if name == "" || s.opts.Compiled.Has(name) {
		return "", nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.sorted() {
		if other != i && other.compiling && other.state == launcher.Starting && other.facts.Compiles == name {
			return fmt.Sprintf("waiting for what instance %s compiles, which began to start at %s", other.facts.ID, other.since.UTC().Format(time.TimeOnly+"Z")), other.changed
		}
	}
	i.compiling = true
	return "", nil
}

// awaitCompiler returns when an instance has the turn to compile or need not compile,
// when it has waited for half of the time for its start, or when the operation has ended.
func (s *Supervisor) awaitCompiler(i *instance, op *operation) {
	began := time.Now()
	ctx, stop := context.WithTimeout(op.ctx, op.limit/2)
	defer stop()
	reason, changed := s.compilesFirst(i)
	if reason == "" {
		return
	}
	for reason != "" && ctx.Err() == nil {
		s.noteWait(i, op, reason)
		select {
		case <-changed:
			reason, changed = s.compilesFirst(i)
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i.compiling = true // also where it has waited long enough
	waited := time.Since(began)
	i.timed("compile_wait", waited)
	op.limit -= waited
}

// noteCompiled notes that an engine is ready, and has kept what it compiled.
func (s *Supervisor) noteCompiled(i *instance) {
	if i.facts.Compiles == "" || s.opts.Compiled == nil {
		return
	}
	if err := s.opts.Compiled.Note(i.facts.Compiles); err != nil {
		s.log.Warn("the next starts of the same model may wait for each other", "instance", i.facts.ID, "error", err)
	}
}
