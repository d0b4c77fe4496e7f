package preload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"hotseat.dev/hotseat/launcher/internal/machine/crashpoint"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

// State of a preloader.
type State string

// The states.
const (
	Loading State = "loading" // the process imports
	Ready   State = "ready"   // the process forks when asked to
	Waiting State = "waiting" // the process ended or refused to serve, and is started again later
)

// order tells a new preloader what to load.
type order struct {
	Script string `json:"script"`
	Recipe
}

// hello is what a preloader says once it has loaded.
type hello struct {
	Refused string   `json:"refused"` // why the preloader does not serve
	Lasting bool     `json:"lasting"` // no preloader of this installation will serve
	Version string   `json:"version"`
	Python  string   `json:"python"`
	Modules int      `json:"modules"`
	Seconds float64  `json:"seconds"`
	Names   []string `json:"load_time"`
	Watch   []string `json:"watch"` // files and folders that change with the installation

	Skipped map[string]string `json:"skipped"` // optional modules that could not be imported, and why
}

// request asks for one fork; answer says what became of it.
type request struct {
	Argv  []string          `json:"argv"`
	Flags int               `json:"flags"` // how many elements of argv after the interpreter are its flags
	Env   map[string]string `json:"env"`
	Dir   string            `json:"dir"` // empty: the preloader's working folder, which is the launcher's
	Umask int               `json:"umask"`
}

type answer struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"start_time"`
	Error     string `json:"error"`
	Refused   string `json:"refused"` // why the child was refused; it has ended
}

// preloader is one process that has the engine loaded. The pool's lock guards
// what changes.
type preloader struct {
	name string
	env  variables
	diff []string // names of the load-time variables that differ from the common environment

	state    State
	why      string // why the preloader is not ready
	began    time.Time
	lastUsed time.Time
	forks    int
	attempt  int
	failed   bool // the last load or fork failed, and no fork has succeeded since
	hello    hello
	counts   loadTime
	stamp    string // of the installation that was loaded
	command  string // stamp of command and interpreter at that time
	bytes    uint64 // of memory (PSS), when the preloader became ready
	run      *run   // the present process; nil when there is none

	cancel context.CancelFunc // ends the preloader for good
}

// run is one process of a preloader, from its start to its end.
type run struct {
	tree   *process.Process
	python []string // the interpreter, with flags
	conn   conn
	talk   chan struct{} // holds one token, which a goroutine takes to speak over conn
	ended  chan string   // why the process is not to be used any more
}

// end has the process ended.
func (r *run) end(reason string) {
	select {
	case r.ended <- reason:
	default: // the process is being ended already
	}
}

// begin starts the process and waits until it has loaded.
func (p *Pool) begin(ctx context.Context, l *preloader) (r *run, h hello, err error) {
	python, err := p.interpreter()
	if err != nil {
		return nil, h, err
	}
	ours, theirs, err := newConn()
	if err != nil {
		return nil, h, err
	}
	kept := false // closed by finish, then
	defer func() {
		if err != nil && !kept {
			err = errors.Join(err, ours.Close())
		}
	}()
	output, err := os.OpenFile(p.logOf(l), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, h, errors.Join(fmt.Errorf("cannot make the preloader's log: %w", err), theirs.Close())
	}
	tree, err := p.opts.Host.Start(process.Command{
		Name: l.name, Path: python[0], Args: append(slices.Clone(python), p.program, pad),
		Env: append(l.env.list(), padName+"="+pad), Output: output, Extra: theirs,
	})
	err = errors.Join(err, output.Close(), theirs.Close())
	if tree == nil {
		return nil, h, err
	}
	r = &run{tree: tree, python: python, conn: ours, talk: make(chan struct{}, 1), ended: make(chan string, 1)}
	r.talk <- struct{}{}
	p.mu.Lock()
	l.run, kept = r, true
	p.mu.Unlock()
	if err != nil {
		return nil, h, err
	}
	stop := context.AfterFunc(ctx, func() { _ = ours.SetDeadline(time.Unix(1, 0)) }) // fails only on a closed connection
	defer stop()
	if err := ours.send(order{Script: p.opts.Command, Recipe: p.opts.Recipe}); err != nil {
		return nil, h, err
	}
	if err := ours.receive(&h); err != nil {
		return nil, h, errors.Join(err, p.lastWords(l))
	}
	return r, h, nil
}

// pad makes room, in bytes, in the places where the kernel shows a process's
// arguments and environment: a forked child writes its own there.
var pad = strings.Repeat(" ", 16<<10)

func (p *Pool) logOf(l *preloader) string { return filepath.Join(p.opts.Dir, l.name+".log") }

// lastWords is an error of what a preloader wrote last.
func (p *Pool) lastWords(l *preloader) error {
	data, err := os.ReadFile(p.logOf(l))
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		return fmt.Errorf("its last line: %s", last)
	}
	return nil
}

// finish ends the present process of a preloader. A process that cannot be ended is
// kept, so that the next one cannot be begun beside it, and the call after that
// tries again.
func (p *Pool) finish(l *preloader) error {
	p.mu.Lock()
	r := l.run
	if l.state == Ready {
		l.state, l.why = Waiting, "it has ended"
		p.tell()
	}
	p.mu.Unlock()
	if r == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	err := r.tree.Kill(ctx)
	<-r.talk             // whoever has it reads the preloader's last answer, or that it has ended
	_ = r.conn.Close()   // nothing is buffered
	r.talk <- struct{}{} // whoever gets it sees that the preloader is not ready
	if err != nil {
		return err
	}
	p.mu.Lock()
	l.run = nil
	p.mu.Unlock()
	return nil
}

// killTime bounds the wait for the end of a preloader that was killed.
const killTime = 10 * time.Second

// fork has the preloader at the other end fork the command; broken says that the
// preloader's process is not to be used any more.
func (p *Pool) fork(by *run, c process.Command) (tree *process.Process, broken bool, err error) {
	gate, opener, err := os.Pipe()
	if err != nil {
		return nil, false, fmt.Errorf("cannot make a gate: %w", err)
	}
	defer opener.Close() // a child that is still at the gate ends
	defer gate.Close()
	argv := slices.Concat(by.python, c.Args)
	for _, text := range slices.Concat(argv, c.Env, []string{c.Dir}) {
		if !utf8.ValidString(text) { // the request is JSON, which would change it
			return nil, false, errors.New("an argument, a variable or the working folder is not UTF-8")
		}
	}
	tree, err = p.opts.Host.Fork(c, func(enter []*os.File, env []string) (process.ID, error) {
		var got answer
		r := request{Argv: argv, Flags: len(by.python) - 1, Env: all(env), Dir: c.Dir, Umask: p.umask}
		deadline := time.Now().Add(p.opts.AnswerTime)
		err := errors.Join(by.conn.SetDeadline(deadline), by.conn.send(r, append([]*os.File{c.Output, gate}, enter...)...))
		crashpoint.At(crashpoint.StartAsked)
		if err == nil {
			err = by.conn.receive(&got)
		}
		if err != nil {
			broken = true
			return process.ID{}, err
		}
		if got.Refused != "" || got.Error != "" {
			broken = true
			return process.ID{}, errors.New(got.Refused + got.Error)
		}
		return process.ID{PID: got.PID, StartTime: got.StartTime}, nil
	})
	if err != nil {
		return nil, broken, err
	}
	crashpoint.At(crashpoint.StartForked)
	if _, err := opener.Write([]byte("g")); err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), killTime)
		defer cancel()
		return nil, false, errors.Join(fmt.Errorf("cannot let the forked process run: %w", err), tree.Kill(ctx))
	}
	return tree, false, nil
}

// ownUmask is the mask that files are made with (Umask in proc_pid_status(5)).
func ownUmask() (int, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("cannot tell the umask: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "Umask:"); ok {
			mask, err := strconv.ParseInt(strings.TrimSpace(value), 8, 32)
			return int(mask), err
		}
	}
	return 0, errors.New("cannot tell the umask: the kernel does not say")
}
