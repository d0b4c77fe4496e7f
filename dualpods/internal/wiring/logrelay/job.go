package logrelay

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"hotseat.dev/hotseat/dualpods/internal/requesters/spi"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// job is the log of one requester. The relay's lock guards it, but for turn.
type job struct {
	source  source
	done    string // version of the source that the log was brought up to
	queued  bool   // or being worked on
	dropped bool
	stop    func()        // ends the following; nil: nobody follows
	turn    chan struct{} // is had by whoever relays
	at      progress      // is changed by whoever has the turn
	whole   bool          // the log is over, and all of it was relayed
	words   *words        // to be printed unless it was
}

// words are the last lines of an engine that failed, as the launcher tells them.
type words struct {
	name  string // of the log that they are printed as
	lines []string
}

// source is what is to be relayed, and to whom.
type source struct {
	launcher string // UID of its Pod
	instance string
	log      string // its name, which another instance of the same id does not have; empty: there is none
	state    launcher.State
	from     int64 // where the requester's part begins; negative: at the end
	address  string
	binding  string
	process  string           // of the requester program
	printed  requesterapi.Log // as the requester program says
}

// version changes when there may be more to relay.
func (s source) version() string {
	return fmt.Sprint(s.log, " ", s.state, " ", s.process, " ", s.binding)
}

func sourceOf(o *decide.Observation) (source, bool) {
	bound := o.Bound()
	if bound == nil || o.SPI == nil || !o.Launcher.Connected {
		return source{}, false
	}
	from := source{
		launcher: string(o.Launcher.UID), instance: o.Record.Instance, from: o.Record.LogFrom,
		address: o.Requester.AdminAddress, binding: bound.Binding(), process: o.SPI.Proxy.Instance, printed: o.SPI.Proxy.Log,
	}
	if o.Instance != nil && o.Instance.LogName != "" {
		from.log, from.state = from.launcher+"/"+o.Instance.LogName, launcher.State(o.Instance.State)
	}
	return from, true
}

// due says that there may be more to relay.
func (j *job) due() bool {
	return !j.dropped && (j.words != nil || j.source.log != "" && j.source.version() != j.done)
}

// progress is how far a log was relayed to a process of a requester.
type progress struct {
	log, process string
	next         int64
}

// relay brings the log up to date; with follow it goes on until nobody writes
// to it any more.
func (j *job) relay(ctx context.Context, opts Options, from source, follow bool) error {
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if from.log == "" {
		return nil
	}
	l := opts.Launcher(from.launcher)
	if l == nil {
		return errors.New("the launcher cannot be asked")
	}
	start, err := j.start(ctx, l, from)
	if err != nil {
		return err
	}
	if j.at.log != from.log {
		j.whole = false
	}
	j.at = progress{from.log, from.process, start}
	to := &printer{ctx: ctx, opts: opts, source: from, at: &j.at}
	if follow {
		err = l.FollowLog(ctx, from.instance, start, to)
	} else {
		copying, stop := context.WithTimeout(ctx, copyTime)
		defer stop()
		to.ctx = copying
		err = l.CopyLog(copying, from.instance, start, to)
	}
	j.whole = j.whole || err == nil && (follow || from.state.Ended())
	return err
}

// say prints the last words of an engine whose log could not be had.
func (j *job) say(ctx context.Context, opts Options, from source, last *words) error {
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	told := j.whole
	j.whole = false // the next instance has a log of its own
	if told {
		return nil
	}
	from.log = last.name
	text := []byte(strings.Join(last.lines, "\n") + "\n")
	_, err := (&printer{ctx: ctx, opts: opts, source: from, at: &progress{}}).Write(text)
	return err
}

// start is where to go on: where this relay was, or where the requester says
// that its log is, or where the requester's part begins.
func (j *job) start(ctx context.Context, l Launcher, from source) (int64, error) {
	switch {
	case j.at.log == from.log && j.at.process == from.process:
		return j.at.next, nil
	case from.printed.Name == from.log:
		return from.printed.NextPos, nil
	case from.from >= 0:
		return from.from, nil
	}
	ctx, stop := context.WithTimeout(ctx, copyTime)
	defer stop()
	part, err := l.Log(ctx, from.instance, 0, 0)
	if launcher.CodeOf(err) == launcherapi.CodeRange {
		err = nil // the log is empty, or its first byte was dropped: its length is told all the same
	}
	return part.Total, err
}

// printer has a requester print what is written to it.
type printer struct {
	ctx    context.Context //nolint:containedctx // of one relay, for io.Writer
	opts   Options
	source source
	at     *progress
}

func (p *printer) Write(chunk []byte) (n int, err error) {
	for n < len(chunk) {
		part := chunk[n:min(len(chunk), n+requesterapi.MaxLogChunk)]
		position, err := p.print(part)
		if refused, ok := errors.AsType[*spi.RefusedError](err); ok && refused.Problem.NextPos != nil {
			p.at.next = *refused.Problem.NextPos // the requester lacks what is before
		}
		if err != nil {
			return n, err
		}
		p.at.next = max(position.NextPos, p.at.next+int64(len(part)))
		n += len(part)
	}
	return n, nil
}

// Dropped has the requester print that bytes are missing. A requester leaves out no byte of
// a log. The note is another log to it, and so is what follows: it begins where that does.
func (p *printer) Dropped(from, to int64) error {
	note := &printer{ctx: p.ctx, opts: p.opts, source: p.source, at: &progress{}}
	note.source.log = fmt.Sprintf("%s+%d.dropped", p.source.log, to)
	if _, err := note.Write([]byte(client.DroppedText(from, to))); err != nil {
		return err
	}
	p.at.next = to
	return nil
}

func (p *printer) print(part []byte) (requesterapi.LogPosition, error) {
	ctx, stop := context.WithTimeout(p.ctx, chunkTime)
	defer stop()
	return p.opts.Requesters.SetLog(ctx, p.source.address, p.source.log, p.source.binding, p.at.next, part)
}
