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
	Waiting State = "waiting" // the process ended or refused to serve; a new one is started later
)

// order is the first message to a preloader: what to load.
type order struct {
	Script string `json:"script"`
	Recipe
}

// hello is a preloader's answer to its order, after the load.
type hello struct {
	Refused string   `json:"refused"` // why the preloader refuses to serve
	Lasting bool     `json:"lasting"` // every preloader of this installation will refuse
	Version string   `json:"version"`
	Python  string   `json:"python"`
	Modules int      `json:"modules"`
	Seconds float64  `json:"seconds"`
	Names   []string `json:"load_time"`
	Watch   []string `json:"watch"` // files and folders that change with the installation

	Skipped map[string]string `json:"skipped"` // optional modules that could not be imported, and why
	// InspectsByExec says why its engines start a new Python to inspect the class of a
	// model; empty: they fork.
	InspectsByExec string `json:"inspects_by_exec"`
	// NVMLLeaves names what NVML leaves in a process that asks it, so that another process
	// asks it for the engines; empty: they ask it themselves.
	NVMLLeaves string `json:"nvml_leaves"`
}

// request asks a preloader for one fork. answer is its result.
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
	Refused   string `json:"refused"` // why the preloader refused to fork; it has ended
}

// preloader keeps one process that has the engine loaded, and starts it again when it
// ends. The pool's lock guards the fields that change.
type preloader struct {
	name string
	env  variables
	diff []string // names of the load-time variables that differ from the common environment

	difference string // diff in words

	state         State
	reason        string // why the preloader is not ready
	began         time.Time
	lastUsed      time.Time
	forks         int
	attempt       int
	failed        bool // the last load or fork failed, and no fork has succeeded since
	hello         hello
	loadTimeNames loadTime
	loadedFrom    installation
	bytes         uint64 // memory (PSS) of the process when it became ready
	run           *run   // the present process; nil: there is none

	cancel context.CancelFunc // ends the preloader for good
}

// run is one process of a preloader, from its start to its end.
type run struct {
	tree   *process.Process
	python []string // the interpreter, with flags
	conn   conn
	turn   chan struct{} // holds one token, which a goroutine takes to use conn
	ended  chan string   // why the process must be ended
}

// end asks runOnce to end the process.
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
	kept := false // whether endProcess will close ours
	defer func() {
		if err != nil && !kept {
			err = errors.Join(err, ours.Close())
		}
	}()
	err = p.provideProgram()
	var output *os.File
	if err == nil {
		output, err = os.OpenFile(p.logPath(l), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	}
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
	r = &run{tree: tree, python: python, conn: ours, turn: make(chan struct{}, 1), ended: make(chan string, 1)}
	r.turn <- struct{}{}
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
		return nil, h, errors.Join(err, p.lastLogLine(l))
	}
	return r, h, nil
}

// pad reserves space where the kernel shows a process's arguments and environment. A
// forked child writes its own arguments and environment there.
var pad = strings.Repeat(" ", 16<<10)

func (p *Pool) logPath(l *preloader) string { return filepath.Join(p.opts.Dir, l.name+".log") }

// lastLogLine returns the last line of a preloader's log, as an error.
func (p *Pool) lastLogLine(l *preloader) error {
	data, err := os.ReadFile(p.logPath(l))
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		return fmt.Errorf("the last line of its log: %s", last)
	}
	return nil
}

// endProcess ends the present process of a preloader. If that fails, the preloader
// keeps its process and the next call tries again.
func (p *Pool) endProcess(l *preloader) error {
	p.mu.Lock()
	r := l.run
	if l.state == Ready {
		l.state, l.reason = Waiting, "its process has ended"
		p.wakeWaiters()
	}
	p.mu.Unlock()
	if r == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	err := r.tree.Kill(ctx)
	<-r.turn             // first, the present holder of the token reads the preloader's last answer
	_ = r.conn.Close()   // nothing is buffered, so no error matters
	r.turn <- struct{}{} // the next holder sees that the preloader is not ready
	if err != nil {
		return err
	}
	p.mu.Lock()
	l.run = nil
	p.mu.Unlock()
	return nil
}

// killTime bounds the wait for the end of a killed process.
const killTime = 10 * time.Second

// fork asks the preloader process by to fork the command. broken means that this
// preloader process must not be used again.
func (p *Pool) fork(by *run, c process.Command) (tree *process.Process, broken bool, err error) {
	gate, opener, err := os.Pipe()
	if err != nil {
		return nil, false, fmt.Errorf("cannot make the pipe that holds the forked process: %w", err)
	}
	defer opener.Close() // a child that still waits at the gate ends then
	defer gate.Close()
	argv := slices.Concat(by.python, c.Args)
	for _, text := range slices.Concat(argv, c.Env, []string{c.Dir}) {
		if !utf8.ValidString(text) { // the request is JSON, which would change other text
			return nil, false, errors.New("an argument, a variable or the working folder is not valid UTF-8")
		}
	}
	tree, err = p.opts.Host.Fork(c, func(enter []*os.File, env []string) (process.ID, error) {
		var got answer
		r := request{Argv: argv, Flags: len(by.python) - 1, Env: byName(env), Dir: c.Dir, Umask: p.umask}
		deadline := time.Now().Add(p.opts.AnswerTime)
		err := errors.Join(by.conn.SetDeadline(deadline), by.conn.send(r, append([]*os.File{c.Output, gate}, enter...)...))
		crashpoint.At(crashpoint.StartAsked)
		if err == nil {
			err = p.receiveInTime(by, &got)
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

// ownUmask returns the launcher's file mode creation mask (Umask in
// proc_pid_status(5)).
func ownUmask() (int, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("cannot read the umask: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "Umask:"); ok {
			mask, err := strconv.ParseInt(strings.TrimSpace(value), 8, 32)
			return int(mask), err
		}
	}
	return 0, errors.New("cannot read the umask: /proc/self/status has no line Umask")
}
