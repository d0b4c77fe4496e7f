// Package initd is the code behind `launcher init -- serve …`: the first
// process of a container, or the parent of the launcher elsewhere. It keeps
// serve running, and reaps whatever becomes its child. It does nothing else,
// so that nothing else can end it and what it looks after.
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

	"hotseat.dev/hotseat/launcher/internal/process/exits"
	"hotseat.dev/hotseat/launcher/internal/process/procfs"
	"hotseat.dev/hotseat/launcher/internal/process/reaper"
)

// ExitDirEnv is the variable in the environment of serve that names ExitDir.
const ExitDirEnv = "HOTSEAT_EXIT_DIR"

// configurationError is the exit code of serve that a restart cannot help.
const configurationError = 2

// Options of Run.
type Options struct {
	// Args of serve, from argv[1]; its program and argv[0] are this executable.
	Args []string
	// ExitDir is the folder where the exits of all children are recorded, see package exits.
	ExitDir string
	// Logger is told of every end and start of serve.
	Logger *slog.Logger
	// Stdout and Stderr of serve; nil: those of this process.
	Stdout, Stderr *os.File
}

// Run runs serve, and runs it again whenever it dies:
//
//	serve exits with 0, or with 2       Run returns that code
//	serve ends after SIGTERM or SIGINT  Run returns its code, 128+N for signal N
//	was forwarded, or ctx has ended
//	serve ends in any other way         it is started again: at once, or after a pause
//	                                    when it has died within a second before
//	SIGHUP, SIGUSR1                     forwarded
//	SIGTERM, SIGINT, ctx ends           forwarded (ctx as SIGTERM); Run returns 0 when serve does not run
//	another child ends                  reaped, its exit recorded in ExitDir
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

	serve   int // process id; 0 while it does not run
	started time.Time
	quick   int              // deaths in a row within quickDeath of the start
	restart <-chan time.Time // set while serve does not run
	ending  bool             // serve has been told to end
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
		return fmt.Errorf("cannot tell the program to run: %w", err)
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
	pid, _, err := syscall.StartProcess(k.program, append([]string{k.program}, k.opts.Args...), &syscall.ProcAttr{
		Env:   k.environ(),
		Files: []uintptr{os.Stdin.Fd(), stdout.Fd(), stderr.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return fmt.Errorf("cannot run %s: %w", k.program, err)
	}
	k.serve, k.started, k.restart = pid, time.Now(), nil
	k.opts.Logger.Info("started serve", "pid", pid)
	return nil
}

func (k *keeper) environ() []string {
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, ExitDirEnv+"=") {
			env = append(env, variable)
		}
	}
	return append(env, ExitDirEnv+"="+k.opts.ExitDir)
}

// run handles what happens until it is over.
func (k *keeper) run(ctx context.Context) (exitCode int) {
	stop := ctx.Done()
	for {
		over := false
		select {
		case <-k.ended:
			exitCode, over = k.onChildren()
		case sig := <-k.signals:
			over = k.onSignal(sig.(syscall.Signal))
		case <-stop:
			stop = nil
			over = k.onSignal(syscall.SIGTERM)
		case <-k.restart:
			k.onRestart()
		}
		if over {
			return exitCode
		}
	}
}

// onChildren reaps all that have ended.
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
			k.opts.Logger.Error("cannot reap", "error", err)
		}
	}
	return exitCode, over
}

func (k *keeper) onServeEnded(status syscall.WaitStatus) (exitCode int, over bool) {
	k.serve = 0
	code := exits.Code(status)
	if code == 0 || code == configurationError || k.ending {
		k.opts.Logger.Info("serve ended", "exit_code", code)
		if code < 0 {
			code = 128 - code
		}
		return code, true
	}
	k.quick++
	if time.Since(k.started) > quickDeath {
		k.quick = 0
	}
	k.pause(fmt.Sprintf("exit code %d", code))
	return 0, false
}

func (k *keeper) pause(reason string) {
	d := delay(k.quick)
	k.restart = time.After(d)
	k.opts.Logger.Error("serve died and is started again", "reason", reason, "pause", d)
}

// onSignal forwards. A process that was not reaped keeps its id, so serve gets it or nobody.
func (k *keeper) onSignal(sig syscall.Signal) (over bool) {
	if sig == syscall.SIGTERM || sig == syscall.SIGINT {
		k.ending = true
	}
	if k.serve == 0 {
		return k.ending
	}
	if err := syscall.Kill(k.serve, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		k.opts.Logger.Error("cannot forward a signal", "signal", sig, "error", err)
	}
	return false
}

func (k *keeper) onRestart() {
	if err := k.start(); err != nil {
		k.quick++
		k.pause(err.Error())
	}
}

// quickDeath is the life below which a death counts towards a pause.
const quickDeath = time.Second

// delay before serve is started again, by how often in a row it died quickly:
// none for the first time, then 100 ms, doubled each time up to 5 s.
func delay(quick int) time.Duration {
	const first, most = 100 * time.Millisecond, 5 * time.Second
	if quick <= 1 {
		return 0
	}
	return min(most, first<<min(quick-2, 10))
}
