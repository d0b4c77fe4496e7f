// Requester is the program that a server-requesting Pod runs: it holds the Pod's
// GPUs, and carries the Pod's traffic to the inference server that a controller
// binds it to.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/spf13/pflag"

	"hotseat.dev/hotseat/dualpods/internal/requesters/requester"
)

// version is set by the linker.
var version = "unknown"

const (
	// mostThreads is how many threads run Go code at once; bytes are carried by
	// the kernel. One for each core of a large node would make the program
	// several times as large.
	mostThreads = 4
	// gcPercent trades time, of which the program needs little, for memory.
	gcPercent = 25
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	if runtime.GOMAXPROCS(0) > mostThreads {
		beSmall()
	}
	debug.SetGCPercent(gcPercent)
	os.Exit(run(os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr))
}

// beSmall puts the program in its own place with fewer threads: Go's runtime has
// taken memory for each before main begins. It returns where that cannot be done.
func beSmall() {
	if os.Setenv("GOMAXPROCS", strconv.Itoa(mostThreads)) == nil {
		_ = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	}
	runtime.GOMAXPROCS(mostThreads)
}

// waitCommand is the argument by which the program only waits: in the container that a server
// patch makes the engine of, where the requester program runs in a sidecar.
const waitCommand = "wait"

// waiting is what a program that only waits says.
const waiting = "waiting for SIGTERM: the requester program runs in the sidecar of this Pod"

// wait returns at SIGTERM or SIGINT. The kubelet ends sidecars after the other containers, so
// that a container that did not end at SIGTERM would take the sidecar's time to drain.
func wait(stderr io.Writer) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	_, _ = fmt.Fprintln(stderr, waiting)
	<-signals
	return 0
}

// untilTold ends the context at the first SIGTERM or SIGINT, and the process at the second one,
// however soon that comes. The caller calls stop.
func untilTold() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for told := false; ; told = true {
			select {
			case again := <-signals:
				if told {
					signal.Reset(again)
					_ = syscall.Kill(syscall.Getpid(), again.(syscall.Signal)) // cannot fail for oneself
					return
				}
				cancel()
			case <-over:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(over)
		<-done
		cancel()
	}
}

// run serves until SIGTERM or SIGINT; a second one ends the process at once. What
// the requester itself has to say goes to stderr: stdout is the log of the
// inference server.
func run(args []string, env func(string) (string, bool), stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == waitCommand {
		return wait(stderr)
	}
	settings, err := parse(args, env)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		_, _ = io.WriteString(stdout, settings.help)
		return 0
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "requester: %v\nrequester --help lists the flags.\n", err)
		return exitUsage
	case settings.version:
		_, _ = fmt.Fprintln(stdout, version)
		return 0
	}
	if settings.options.DebugPort == 0 {
		runtime.MemProfileRate = 0 // nobody can ask for what was allocated
	}
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	settings.options.Log = stdout
	settings.options.Logger = logger
	settings.options.Version = version
	ctx, stop := untilTold()
	defer stop()
	r, err := requester.New(settings.options)
	if err != nil {
		logger.Error("cannot start", "error", err)
		return exitFailed
	}
	if err := errors.Join(r.Run(ctx), r.Close()); err != nil {
		logger.Error("the requester failed", "error", err)
		return exitFailed
	}
	logger.Info("ended")
	return 0
}
