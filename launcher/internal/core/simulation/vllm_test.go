package simulation

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hotseat.dev/hotseat/launcher/internal/engines/engine"
)

// simEngine is vLLM as the launcher talks to it. What it was asked it does, also
// when nobody waits for the answer any more.
type simEngine struct {
	l *life
	*engine.VLLM
}

func (e *simEngine) Close() { e.VLLM.Close() }

func portOf(base string) int {
	port, err := strconv.Atoi(base[strings.LastIndex(base, ":")+1:])
	if err != nil {
		panic(err)
	}
	return port
}

// ask has the engine at base do something, after all that it was asked before, and
// waits for that.
func (e *simEngine) ask(ctx context.Context, what, base string, most time.Duration, do func(p *proc) error) error {
	if err := e.l.call(what); err != nil {
		return err
	}
	defer e.l.effected()
	took := time.Millisecond + e.l.m.take(what+" "+base, most)
	answer := make(chan error, 1)
	e.l.m.mu.Lock()
	p := e.l.m.at(portOf(base))
	if p == nil {
		answer <- errRefused
	} else {
		before := p.last
		p.last = make(chan struct{})
		go p.obey(before, p.last, took, func(err error) { answer <- err }, do)
	}
	e.l.m.mu.Unlock()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-e.l.died:
		return errDead
	}
}

var (
	errRefused = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	errBroken  = errors.New("the connection broke off")
)

// obey does what the engine was asked, when it has done what it was asked before,
// also when nobody waits for the answer any more.
func (p *proc) obey(before, done chan struct{}, took time.Duration, answer func(error), do func(*proc) error) {
	defer close(done)
	if before != nil {
		<-before
	}
	p.m.mu.Lock()
	took += p.slow
	p.m.mu.Unlock()
	for wait := took; wait > 0; wait = p.busy() {
		select {
		case <-time.After(wait):
		case <-p.done:
			answer(errBroken)
			return
		}
	}
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	switch {
	case !p.alive():
		answer(errBroken)
	case !p.ready:
		answer(errRefused)
	case p.crashNext:
		p.troubled = true
		p.end(signalled(syscall.SIGSEGV))
		answer(errBroken)
	default:
		answer(do(p))
	}
}

// busy is how long the engine hangs still, or waits for the disk of its log.
func (p *proc) busy() time.Duration {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	return max(time.Until(p.hung), time.Until(p.silent))
}

func (p *proc) untilItLogs() time.Duration {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	return time.Until(p.silent)
}

// Progress: the counters of an engine that has just waited for the disk may not have grown yet.
func (e *simEngine) Progress(context.Context, string, engine.Secret) (string, error) {
	return "none", nil
}

// Ready: the server answers also while the engine core hangs.
func (e *simEngine) Ready(ctx context.Context, base string) error {
	if err := e.l.call("health"); err != nil {
		return err
	}
	select {
	case <-time.After(time.Millisecond + e.l.m.take("health "+base, time.Millisecond)):
	case <-ctx.Done():
		return ctx.Err()
	}
	e.l.m.mu.Lock()
	defer e.l.m.mu.Unlock()
	if p := e.l.m.at(portOf(base)); p == nil || !p.ready {
		return errRefused
	}
	return nil
}

func (e *simEngine) IsSleeping(ctx context.Context, base string) (sleeping bool, err error) {
	err = e.ask(ctx, "is sleeping", base, 5*time.Millisecond, func(p *proc) error { sleeping = p.level > 0; return nil })
	return sleeping, err
}

func (e *simEngine) Sleep(ctx context.Context, base string, level int, check bool) error {
	for g := range e.l.gatesTo(portOf(base)) {
		if g.isOpen() && !e.l.isDead() {
			e.l.m.wrong(gatesTellTheTruth, "%s is put to sleep, and its gate is open", g.id)
		}
		if !e.l.isDead() {
			e.l.w.checkLevelWritten(g.id, level)
		}
	}
	return e.ask(ctx, "sleep", base, 800*time.Millisecond, func(p *proc) error {
		switch {
		case p.refusing:
			return &engine.StatusError{Call: "POST /sleep", Status: 500}
		case p.liar && check:
			return errors.New("it says that it sleeps, and does not")
		case p.liar || p.level > 0:
			return nil
		case p.sleepsInPart:
			p.crippled, p.held, p.since = true, map[string]uint64{}, time.Now()
			for uuid, need := range p.need {
				p.held[uuid] = need / 2
			}
			return &engine.StatusError{Call: "POST /sleep", Status: 500}
		}
		p.level, p.since = level, time.Now()
		left := map[string]uint64{}
		for uuid := range p.need {
			left[uuid] = gib
		}
		go p.giveBack(p.m.take("memory of "+p.name, 500*time.Millisecond), left)
		return nil
	})
}

// Wake makes the calls that vLLM's wake takes: one from level 1, several from level 2. What
// was called is done, also when the next call is not made.
func (e *simEngine) Wake(ctx context.Context, base string, level int, check bool) error {
	if level == 1 {
		return e.wakeUp(ctx, base, 1, check)
	}
	if sleeping, err := e.IsSleeping(ctx, base); err != nil || !sleeping {
		return err
	}
	if err := e.wakeWeights(ctx, base); err != nil {
		return err
	}
	if err := e.ask(ctx, "reload", base, 400*time.Millisecond, func(p *proc) error {
		if p.cannotReload {
			return &engine.StatusError{Call: "POST /collective_rpc", Status: 500}
		}
		return nil
	}); err != nil {
		return err
	}
	return e.wakeUp(ctx, base, 2, check)
}

// wakeWeights gives an engine that sleeps the memory of its weights. It still says that it
// sleeps.
func (e *simEngine) wakeWeights(ctx context.Context, base string) error {
	return e.ask(ctx, "wake weights", base, 200*time.Millisecond, func(p *proc) error {
		switch {
		case p.refusing:
			return &engine.StatusError{Call: "POST /wake_up", Status: 500}
		case p.level == 0, p.liar, p.inPart:
			return nil
		case !p.reserve(2):
			p.starve()
			return errBroken
		}
		p.inPart = true
		return nil
	})
}

// wakeUp wakes what sleeps still.
func (e *simEngine) wakeUp(ctx context.Context, base string, level int, check bool) error {
	return e.ask(ctx, "wake", base, 400*time.Millisecond, func(p *proc) error {
		switch {
		case p.refusing:
			return &engine.StatusError{Call: "POST /wake_up", Status: 500}
		case p.level == 0:
			return nil
		case p.liar && check:
			return errors.New("it says that it is awake, and is not")
		case p.liar:
			return nil
		case p.wakesInPart && level == 1:
			if !p.inPart && !p.reserve(2) {
				p.starve()
				return errBroken
			}
			p.inPart = true
			return &engine.StatusError{Call: "POST /wake_up", Status: 500}
		case !p.reserve(1):
			p.starve()
			return errBroken
		}
		p.garbage = p.garbage || level < p.level
		p.garbled, p.mute = p.garbled || p.wakesGarbled, p.mute || p.wakesMute
		p.level, p.inPart = 0, false
		return nil
	})
}

// Resleep wakes the rest of an engine that is awake in part, and puts it to sleep.
func (e *simEngine) Resleep(ctx context.Context, base string, level int) error {
	if level == 2 {
		if err := e.wakeWeights(ctx, base); err != nil {
			return err
		}
		if err := e.wakeUp(ctx, base, 2, false); err != nil {
			return err
		}
	}
	return e.Sleep(ctx, base, level, true)
}

// Probe: an engine that woke by the sequence of another level answers as ever here, so that
// nothing but the right sequence keeps the launcher from that.
func (e *simEngine) Probe(ctx context.Context, base, _ string, _ engine.Secret, _ string) (engine.Answer, error) {
	var answer engine.Answer
	var asked *proc
	mute := false
	err := e.ask(ctx, "probe", base, 50*time.Millisecond, func(p *proc) error {
		if p.level > 0 {
			return errors.New("it sleeps")
		}
		asked, mute, answer = p, p.mute, engine.Answer{Kind: "completion", Token: p.model}
		if p.garbled {
			answer.Token = "!"
		}
		return nil
	})
	if err != nil {
		return engine.Answer{}, err
	}
	if mute {
		select {
		case <-ctx.Done():
			return engine.Answer{}, ctx.Err()
		case <-e.l.died:
			return engine.Answer{}, errDead
		}
	}
	e.l.m.mu.Lock()
	defer e.l.m.mu.Unlock()
	asked.answered++
	return answer, nil
}

// gatesTo are the gates before a port.
func (l *life) gatesTo(port int) map[*gate]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[*gate]bool{}
	for g := range l.gates {
		if g.target == port {
			out[g] = true
		}
	}
	return out
}
