package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// quiet is how long a phase takes before a line says that it is under way.
const quiet = time.Second

// progress writes to standard error, while a command waits, lines about states and
// phases, each with the time since the command began.
type progress struct {
	began time.Time

	mu      sync.Mutex
	out     io.Writer         // nil once progress is closed
	last    map[string]string // state in the last line, by instance
	lasting *time.Timer       // fires when the present phase has lasted for quiet
}

func newProgress(out io.Writer) *progress {
	return &progress{out: out, began: time.Now(), last: map[string]string{}}
}

// close ends the output of lines.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopLasting()
	p.out = nil
}

func (p *progress) stopLasting() {
	if p.lasting != nil {
		p.lasting.Stop()
		p.lasting = nil
	}
}

// line writes one line. An error of standard error is ignored. The lock is held.
func (p *progress) line(format string, args ...any) {
	if p.out != nil {
		_, _ = fmt.Fprintf(p.out, "%8.3fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
	}
}

// say writes one line.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line(format, args...)
}

// state writes a line about an instance's state, once for each change.
func (p *progress) state(i launcherapi.Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last[i.InstanceID] == i.State {
		return
	}
	p.last[i.InstanceID] = i.State
	p.line("%s is %s", i.InstanceID, i.State)
}

// gone writes a line about an instance that was stopped, once.
func (p *progress) gone(i launcherapi.Instance) {
	const gone = "gone"
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last[i.InstanceID] == gone {
		return
	}
	p.last[i.InstanceID] = gone
	if i.State == string(launcher.Failed) {
		p.line("%s, which had failed, is gone", i.InstanceID)
		return
	}
	p.line("%s is stopped, and gone", i.InstanceID)
}

// swap writes a line about a phase of a swap when it is over, and before that when
// it takes long.
func (p *progress) swap(step launcherapi.SwapProgress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopLasting()
	what := step.Phase
	if step.InstanceID != "" {
		what += " " + step.InstanceID
	}
	switch step.Type {
	case launcherapi.ProgressStarted:
		var own *time.Timer
		own = time.AfterFunc(quiet, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.lasting == own {
				p.line("%s …", what)
			}
		})
		p.lasting = own
	case launcherapi.ProgressDone:
		p.line("%s: %s", what, ms(step.DurationMS))
	}
}

// ms writes milliseconds for people.
func ms(n float64) string {
	if n < 1000 {
		return fmt.Sprintf("%.1f ms", n)
	}
	return fmt.Sprintf("%.2f s", n/1000)
}
