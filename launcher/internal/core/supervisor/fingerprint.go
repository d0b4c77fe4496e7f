package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file compares what an engine answers after a wake with what it answered when it was
// started. After some wakes engines report that they are healthy, and answer garbage or
// nothing. The comparison is a part of the wake: the instance is not awake before it.

// fingerprint is the answer of an engine to a probe, before its gate first opened. The zero
// value is that of an engine that gave none.
type fingerprint struct {
	engine.Answer
	// Varies: the engine answered the probe in two ways. Later answers need only come in
	// time.
	Varies bool `json:"varies,omitempty"`
}

// exists reports whether the engine has a fingerprint.
func (f *fingerprint) exists() bool { return f.kind() != "" }

// kind returns the kind of question that the engine takes; empty: it is not known.
func (f *fingerprint) kind() string {
	if f == nil {
		return ""
	}
	return f.Kind
}

// ask asks the instance's engine for one answer.
func (s *Supervisor) ask(ctx context.Context, i *instance, kind string) (engine.Answer, error) {
	s.mu.Lock()
	model := slices.Concat(i.facts.ServedNames, []string{i.facts.Model})[0]
	base, key := i.engineURL(), i.apiKey
	s.mu.Unlock()
	return i.engine.Probe(ctx, base, model, key, kind)
}

// takeFingerprint asks a new engine the same question twice. An engine that does not answer
// in time has no fingerprint, and is started all the same. ctx bounds the start.
func (s *Supervisor) takeFingerprint(ctx context.Context, i *instance, op *operation) (taken *fingerprint, took time.Duration) {
	limit := s.fingerprintLimit(i, op)
	if limit <= 0 {
		return nil, 0
	}
	if i.staleRecord {
		s.noteNoFingerprint(i, errors.New("its record is stale, and it may have slept before"))
		return nil, 0
	}
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end))
	}
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	began := time.Now()
	first, err := s.ask(ctx, i, "")
	var second engine.Answer
	if err == nil {
		second, err = s.ask(ctx, i, first.Kind)
	}
	took = time.Since(began)
	switch {
	case op.ctx.Err() != nil:
	case err == nil:
		taken = &fingerprint{Answer: first, Varies: !second.Like(first)}
	case ctx.Err() != nil:
		s.noteNoFingerprint(i, fmt.Errorf("it did not answer two requests within %s", limit))
	default:
		s.noteNoFingerprint(i, err)
	}
	return taken, took
}

const (
	// shortestFingerprint is what an engine gets for its fingerprint if its swap has no time left.
	shortestFingerprint = time.Second
	// resumedFingerprint bounds the fingerprint of a resumed start for which a recovered swap
	// waits: that waits for at least 5 s for its instances to settle.
	resumedFingerprint = 2500 * time.Millisecond
)

// fingerprintLimit returns how long the engine of a new instance may take for its
// fingerprint: at most half of the time that is left to the swap that makes the instance.
// 0: the launcher takes no fingerprints.
func (s *Supervisor) fingerprintLimit(i *instance, op *operation) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := s.opts.Limits.Fingerprint
	if op.resumed && i.swapID != "" {
		limit = min(limit, resumedFingerprint)
	}
	if c := s.claims[i.swapID]; limit > 0 && c != nil && !c.plan.Until.IsZero() {
		limit = min(limit, max(time.Until(c.plan.Until)/2, shortestFingerprint))
	}
	return limit
}

func (s *Supervisor) noteNoFingerprint(i *instance, why error) {
	s.note(i, "an instance has no fingerprint: its answers are not checked after a wake", "no fingerprint was taken, and the answers are not checked after a wake: ", why)
}

// errWrongAnswer reports that an engine does not answer as it did when it was started.
var errWrongAnswer = errors.New("its answers are wrong")

// noAnswerError reports that an engine did not answer in that time.
type noAnswerError time.Duration

func (e noAnswerError) Error() string {
	return fmt.Sprintf("it reports that it is awake, but did not answer a short request within %s", time.Duration(e))
}

// Unwrap makes it a timeout.
func (noAnswerError) Unwrap() error { return context.DeadlineExceeded }

// isCompared reports whether wakes of the instance are checked. The lock is held.
func (s *Supervisor) isCompared(i *instance) bool {
	return s.opts.Limits.Fingerprint > 0 && i.fingerprint.exists()
}

// compare asks an engine that has woken for an answer, and compares that with the
// fingerprint. It asks once more if the answer is unlike. The error is an errWrongAnswer,
// a noAnswerError, or that of the last request. If ctx has ended, it says nothing about the
// engine.
func (s *Supervisor) compare(ctx context.Context, i *instance) (err error) {
	s.mu.Lock()
	compared, recorded, keyForgotten := s.isCompared(i), i.fingerprint, i.keyForgotten
	s.mu.Unlock()
	if !compared {
		return nil
	}
	limit := s.opts.Limits.Fingerprint
	for _, kind := range []string{recorded.Kind, engine.DoubtedKind(recorded.Kind)} {
		limited, stop := context.WithTimeout(ctx, limit)
		var now engine.Answer
		now, err = s.ask(limited, i, kind)
		late := limited.Err() != nil
		stop()
		switch {
		case err == nil && (recorded.Varies || now.Like(recorded.Answer)):
			return nil
		case err == nil:
			err = fmt.Errorf("%w: it answers %q, and answered %q when it was started", errWrongAnswer, now.Token, recorded.Token)
		case keyForgotten && isUnauthorized(err):
			s.log.Warn("cannot check the answers of an instance that has woken: the launcher was restarted and does not know the API key", "instance", i.facts.ID, "error", err)
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("the wait for its answer ended: %w", context.Cause(ctx))
		case late:
			return noAnswerError(limit)
		}
		limit *= dearer
	}
	return err
}

// dearer is how many times as long an engine may take for the second question: for its first
// likeliest answers vLLM compiles a function.
const dearer = 3

// isUnauthorized reports whether an engine refuses the API key.
func isUnauthorized(err error) bool {
	status, ok := errors.AsType[*engine.StatusError](err)
	return ok && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden)
}

// addCanaryTiming adds the time that the probes of a start or a wake took; 0: there were
// none. The lock is held.
func (s *Supervisor) addCanaryTiming(i *instance, took time.Duration) {
	if took > 0 {
		i.addTiming(launcherapi.PhaseCanary, took)
		s.opts.Observer.Phase(launcherapi.PhaseCanary, took)
	}
}

// compareWoken compares the answers of an engine that has just woken, and ends the wake if
// they are wrong. Such an engine is ended: it is not put back to sleep, from where the next
// wake would bring it. If ctx ends first, the engine goes back to sleep: whether its
// answers are right is not known, and the next wake asks. The same holds for an engine that
// does not answer while the disk stalls, or did not before the stall ended.
func (s *Supervisor) compareWoken(ctx context.Context, i *instance, op *operation, failed func(error)) bool {
	s.mu.Lock()
	compared := s.isCompared(i)
	op.woken = true
	i.notify()
	s.mu.Unlock()
	if !compared {
		return true
	}
	began := time.Now()
	err := s.watchingDisk(ctx, i, func(ctx context.Context) error { return s.compare(ctx, i) })
	switch {
	case err == nil:
		op.compared = time.Since(began)
		return true
	case errors.Is(err, errWrongAnswer):
		s.endUnusable(i, op, err)
	case ctx.Err() != nil || s.silencedByDisk(i, began, err):
		failed(err)
	case errors.Is(err, context.DeadlineExceeded) || !diesSoon(op.ctx, i, err):
		s.endUnusable(i, op, err)
	case i.restarts(): // its exit is no event
		failed(exitedError{i.tree.Exit()})
	}
	return false
}

// endUnusable ends an engine that is awake by its own report and cannot be used.
func (s *Supervisor) endUnusable(i *instance, op *operation, why error) {
	tail := s.tail(i.facts.LogName)
	s.endOperation(i, op, launcher.EventTimedOut, func() {
		op.err, i.cause, i.lastLog = why, "no_answers", tail
		i.reason = fmt.Sprintf("woke, but cannot be used: %v; the launcher has ended it, and a swap to it starts it again", why)
		if errors.Is(why, errWrongAnswer) {
			i.cause = "wrong_answers"
		}
	})
}
