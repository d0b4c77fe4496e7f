// Package initd is the code behind `launcher init -- serve …`: the first process of a
// container, or the parent of the launcher elsewhere. It keeps serve running, and reaps
// the processes that become its children. It does nothing else, so there is little that
// could end it.
package initd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/process/exits"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/launcher/internal/machine/process/reaper"
)

// ExitDirEnv is the variable in the environment of serve that names ExitDir.
const ExitDirEnv = "HOTSEAT_EXIT_DIR"

// Options of Run.
type Options struct {
	// Args of serve, from argv[1]; its program and argv[0] are this executable.
	Args []string
	// ExitDir is the folder where the exits of all children are recorded, see package exits.
	ExitDir string
	// Logger logs every start and end of serve.
	Logger *slog.Logger
	// Misconfigured is the exit code for a wrong configuration.
	Misconfigured int
	// StopsEngines reports whether serve stops the engines when it is told to end.
	StopsEngines func() bool
	// LastTime limits how long serve runs a last time.
	LastTime time.Duration
	// Stdout and Stderr of serve; nil: those of this process.
	Stdout, Stderr *os.File
}

// Run runs serve, and runs it again whenever it dies:
//
//	serve has called Misconfigured      Run returns Options.Misconfigured
//	serve exits with 0, or ends after   Run returns its code, 128+N for signal N
//	SIGTERM or SIGINT was forwarded,
//	or ctx has ended
//	serve ends in any other way,        it is started again: at once if it had called
//	with any exit code                  Ready, else after a pause of at most a second
//	SIGHUP, SIGUSR1                     forwarded
//	SIGTERM, SIGINT, ctx ends           forwarded (ctx as SIGTERM); Run returns 0 when serve does not run
//	serve was told to end, or did not   serve is run a last time, if StopsEngines says so; Run returns
//	run then, and never called Closed   the code of that run, which is killed after LastTime
//	another child ends                  reaped, its exit recorded in ExitDir
//
// In its last run, serve stops the engines that an earlier serve has left, and ends.
//
// The error is not nil only when serve could not be run the first time. Serve
// has a process group of its own, so that a terminal's Ctrl-C reaches it once,
// and is killed when this process dies. What serve has started lives on in
// both cases.
func Run(ctx context.Context, opts Options) (exitCode int, err error) {
	runtime.LockOSThread() // the death of this thread, not of the process, would kill serve
	defer runtime.UnlockOSThread()
	k := &keeper{opts: opts}
	if err := k.open(); err != nil {
		return 0, err
	}
	defer signal.Stop(k.signals)
	defer signal.Stop(k.ended)
	if err := k.start(); err != nil {
		return 0, err
	}
	return k.run(ctx), nil
}

// keeper keeps one serve running.
type keeper struct {
	opts     Options
	program  string
	recorder *exits.Recorder
	signals  chan os.Signal // to forward
	ended    chan os.Signal // SIGCHLD

	serve   int              // process id; 0 while it does not run
	words   int              // the pipe that serve speaks to init by, while serve runs
	unready int              // deaths in a row before serve was ready
	restart <-chan time.Time // fires when serve is to be started again; nil while serve runs
	ending  bool             // serve has been told to end
	last    <-chan time.Time // fires when the last run of serve has lasted too long; nil before that run
}

func (k *keeper) open() error {
	bootID, err := procfs.BootID()
	if err != nil {
		return err
	}
	if k.recorder, err = exits.NewRecorder(k.opts.ExitDir, bootID); err != nil {
		return err
	}
	if k.program, err = os.Executable(); err != nil {
		return fmt.Errorf("cannot find the program to run: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become the reaper of orphans: %w", err)
	}
	k.signals, k.ended = make(chan os.Signal, 16), make(chan os.Signal, 1)
	signal.Notify(k.signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1)
	signal.Notify(k.ended, syscall.SIGCHLD)
	return nil
}

func (k *keeper) start() error {
	stdout, stderr := k.opts.Stdout, k.opts.Stderr
	if stdout == nil {
		stdout = os.Stdout
	}
	if stderr == nil {
		stderr = os.Stderr
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return fmt.Errorf("cannot create the pipe for messages of serve: %w", err)
	}
	pid, _, err := syscall.StartProcess(k.program, append([]string{k.program}, k.opts.Args...), &syscall.ProcAttr{
		Env:   k.environ(),
		Files: []uintptr{os.Stdin.Fd(), stdout.Fd(), stderr.Fd(), uintptr(pipe[1])},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	_ = unix.Close(pipe[1]) // serve has its own copy
	if err != nil {
		_ = unix.Close(pipe[0])
		return fmt.Errorf("cannot run %s: %w", k.program, err)
	}
	k.serve, k.words, k.restart = pid, pipe[0], nil
	k.opts.Logger.Info("started serve", "pid", pid)
	return nil
}

func (k *keeper) environ() []string {
	var env []string
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); name != ExitDirEnv && name != wordsEnv && name != lastEnv {
			env = append(env, variable)
		}
	}
	if k.last != nil {
		env = append(env, lastEnv+"=1")
	}
	return append(env, ExitDirEnv+"="+k.opts.ExitDir, fmt.Sprintf("%s=%d", wordsEnv, wordsFD))
}

// run handles signals, deaths of children and restarts until serve is not to run
// any more.
func (k *keeper) run(ctx context.Context) (exitCode int) {
	stop := ctx.Done()
	for {
		over := false
		select {
		case <-k.ended:
			exitCode, over = k.onChildren()
		case sig := <-k.signals:
			exitCode, over = k.onSignal(sig.(syscall.Signal))
		case <-stop:
			stop = nil
			exitCode, over = k.onSignal(syscall.SIGTERM)
		case <-k.restart:
			k.onRestart()
		case <-k.last:
			k.opts.Logger.Error("serve cannot stop the engines in time; killing it", "limit", k.opts.LastTime)
			k.forward(syscall.SIGKILL)
		}
		if over {
			return exitCode
		}
	}
}

// onChildren reaps all children that have ended.
func (k *keeper) onChildren() (exitCode int, over bool) {
	for reaped := 1; reaped > 0; {
		var err error
		reaped, err = reaper.Reap(func(procfs.Stat) bool { return false }, func(stat procfs.Stat, status syscall.WaitStatus) {
			if err := k.recorder.Record(stat.PID, stat.StartTime, status); err != nil {
				k.opts.Logger.Error("cannot record an exit", "pid", stat.PID, "error", err)
			}
			if stat.PID == k.serve {
				exitCode, over = k.onServeEnded(status)
			}
		})
		if err != nil {
			k.opts.Logger.Error("cannot reap children", "error", err)
		}
	}
	return exitCode, over
}

func (k *keeper) onServeEnded(status syscall.WaitStatus) (exitCode int, over bool) {
	k.serve = 0
	said := k.hear()
	code := exits.Code(status)
	if code == 0 || said.misconfigured || k.ending {
		k.opts.Logger.Info("serve ended", "exit_code", code)
		if code < 0 {
			code = 128 - code
		}
		switch {
		case said.misconfigured:
			return k.opts.Misconfigured, true
		case said.closed, code == 0:
			return code, true
		default:
			return k.runLast(code)
		}
	}
	if said.ready {
		k.unready = 0
	} else {
		k.unready++
	}
	k.pause(fmt.Sprintf("exit code %d", code))
	return 0, false
}

// hear reads what serve, which has ended, had said.
func (k *keeper) hear() heard {
	said, err := hear(k.words)
	if err := errors.Join(err, unix.Close(k.words)); err != nil {
		k.opts.Logger.Error("cannot find out why serve ended", "error", err)
	}
	return said
}

func (k *keeper) pause(reason string) {
	d := delay(k.unready)
	k.restart = time.After(d)
	k.opts.Logger.Error("serve ended unexpectedly; restarting it", "reason", reason, "pause", d)
}

// onSignal forwards a signal to serve, if serve runs.
func (k *keeper) onSignal(sig syscall.Signal) (exitCode int, over bool) {
	if sig == syscall.SIGTERM || sig == syscall.SIGINT {
		k.ending = true
	}
	if k.serve == 0 && k.ending {
		return k.runLast(0)
	}
	if k.serve != 0 {
		k.forward(sig)
	}
	return 0, false
}

// runLast runs serve a last time, if an earlier serve may have left engines that are to be
// stopped. Otherwise init ends with the given code.
func (k *keeper) runLast(code int) (exitCode int, over bool) {
	if k.last != nil || !k.opts.StopsEngines() {
		return code, true
	}
	k.opts.Logger.Warn("running serve a last time: an earlier one may have left engines")
	k.last = time.After(k.opts.LastTime)
	if err := k.start(); err != nil {
		k.opts.Logger.Error("cannot stop the engines: they are left running", "error", err)
		return max(code, 1), true
	}
	return 0, false
}

// forward sends a signal to serve, which runs. A process that was not reaped keeps its id, so
// no other process can get the signal.
func (k *keeper) forward(sig syscall.Signal) {
	if err := syscall.Kill(k.serve, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		k.opts.Logger.Error("cannot forward a signal", "signal", sig, "error", err)
	}
}

func (k *keeper) onRestart() {
	if err := k.start(); err != nil {
		k.unready++
		k.pause(err.Error())
	}
}

// delay returns the pause before serve is started again. unready is how often in a row
// serve has ended before it was ready: 100 ms, doubled each time, up to a second. There is
// no pause if serve was ready.
func delay(unready int) time.Duration {
	const first, most = 100 * time.Millisecond, time.Second
	if unready == 0 {
		return 0
	}
	return min(most, first<<min(unready-1, 10))
}
