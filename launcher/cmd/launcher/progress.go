package main

import (
	"fmt"
	"io"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// progress tells on standard error what happens while a command waits, each
// line with the time since the command began.
type progress struct {
	out   io.Writer
	began time.Time
	last  map[string]string // state last told, by instance
}

func newProgress(out io.Writer) *progress {
	return &progress{out: out, began: time.Now(), last: map[string]string{}}
}

// line writes one line. A standard error that is gone stops nothing.
func (p *progress) line(format string, args ...any) {
	since := time.Since(p.began).Seconds()
	_, _ = fmt.Fprintf(p.out, "%8.3fs  %s\n", since, fmt.Sprintf(format, args...))
}

// state tells of an instance's state, once for each change.
func (p *progress) state(i launcherapi.Instance) {
	if p.last[i.InstanceID] == i.State {
		return
	}
	p.last[i.InstanceID] = i.State
	if i.Reason != "" {
		p.line("%s is %s: %s", i.InstanceID, i.State, oneLine(i.Reason))
		return
	}
	p.line("%s is %s", i.InstanceID, i.State)
}

// swap tells of one step of a swap.
func (p *progress) swap(step launcherapi.SwapProgress) {
	what := step.Phase
	if step.InstanceID != "" {
		what += " " + step.InstanceID
	}
	switch step.Type {
	case launcherapi.ProgressStarted:
		p.line("%s …", what)
	case launcherapi.ProgressDone:
		p.line("%s took %s", what, ms(step.DurationMS))
	}
}

// ms writes milliseconds for people.
func ms(n float64) string {
	if n < 1000 {
		return fmt.Sprintf("%.1f ms", n)
	}
	return fmt.Sprintf("%.2f s", n/1000)
}
