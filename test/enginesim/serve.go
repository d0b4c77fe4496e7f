package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"hotseat.dev/hotseat/test/enginesim/internal/cmdline"
	"hotseat.dev/hotseat/test/enginesim/internal/engine"
	"hotseat.dev/hotseat/test/enginesim/internal/ranks"
	"hotseat.dev/hotseat/test/enginesim/internal/simopts"
	"hotseat.dev/hotseat/test/enginesim/internal/stamp"
	"hotseat.dev/hotseat/test/enginesim/internal/tree"
	"hotseat.dev/hotseat/test/enginesim/internal/vllmerr"
	"hotseat.dev/hotseat/test/enginesim/internal/vlog"
)

// serve is `vllm serve`: it returns the exit code.
func serve(args []string) int {
	// A title is a courtesy.
	_ = os.WriteFile("/proc/self/comm", []byte("vllm"), 0)
	out, errs := vlog.New(os.Stdout, "APIServer"), vlog.New(os.Stderr, "APIServer")
	c, err := configure(args, out)
	var wrong *cmdline.UsageError
	if errors.As(err, &wrong) {
		head := "usage: vllm serve [model_tag] [options]"
		if wrong.Prog == "vllm" {
			head = usageText
		}
		fmt.Fprintf(os.Stderr, "%s\n%s\n", head, err)
		return 2
	}
	if err == nil {
		time.Sleep(c.sim.ImportTime)
		signals := make(chan os.Signal, 8)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
		a := &apiServer{config: c, out: out, errs: errs, signals: signals, tree: tree.New()}
		if c.headless {
			err = a.runHeadless()
		} else {
			err = a.run()
		}
	}
	if err != nil {
		errs.Plain("Traceback (most recent call last):\n%s", err)
		return 1
	}
	return 0
}

// apiServer is the process at the top of the engine's tree.
type apiServer struct {
	*config
	out, errs *vlog.Logger
	signals   chan os.Signal
	tree      *tree.Tree
	ranks     *ranks.Entry // the tree with the other ranks; nil in one of these
	engine    *engine.Engine
	crashing  atomic.Bool // a fault is ending this process
}

// run starts the engine and answers until the end. The error is what vLLM
// fails with; by then nothing is left running.
func (a *apiServer) run() error {
	a.out.Info("api_utils.py:347", "  version %s\n  model   %s", tree.Version, a.model)
	a.out.Info("api_utils.py:286", "non-default args: %s", a.nonDefault)
	sock, err := bind(a.config)
	if err != nil {
		return err
	}
	defer sock.close()
	if err := a.checkModel(); err != nil {
		return err
	}
	if a.ranks, err = ranks.Listen(a.tree, a.nodes, a.masterPort); err != nil {
		return err
	}
	if a.sim.CrashAtLoad.Due("api", a.sim.OnceFile) {
		go a.crash(a.sim.CrashAtLoad)
	}
	if err = a.tree.Start(a.boot()); err == nil {
		err = a.ranks.Meet()
	}
	a.stayIfTold()
	if err != nil {
		a.out.Info("utils.py:632", "[shutdown] Process manager: send sigterm to process EngineCore")
		failure := vllmerr.New("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}")
		return errors.Join(failure, a.ranks.Close())
	}
	ln, err := sock.listen()
	if err != nil {
		return errors.Join(err, a.ranks.Close())
	}
	stamp.Ready()
	a.engine = engine.New(engine.Options{Executor: a.ranks, Slots: a.slots, Warn: a.out.Warn})
	return a.answer(ln)
}

// runHeadless is a rank other than the entry: it has workers and no server. When the entry is
// gone it stays, without a word. When its own workers are gone it ends.
func (a *apiServer) runHeadless() error {
	if err := a.checkModel(); err != nil {
		return err
	}
	address := net.JoinHostPort(a.masterAddr, strconv.Itoa(a.masterPort))
	a.out.Info("serve.py:171", "Launching vLLM (v%s) headless multiproc executor, with head node address %s for torch.distributed process group.", tree.Version, address)
	loaded := make(chan struct{})
	// The process ends with its connection.
	go func() { _ = ranks.Join(a.tree, a.node, address, loaded) }()
	if err := a.tree.Start(a.boot()); err != nil {
		return errors.Join(err, a.tree.Close())
	}
	close(loaded)
	for {
		select {
		case <-a.signals:
			if a.sim.IgnoreTerm {
				continue
			}
			_ = a.tree.Close() // a worker that has ended was to end
			select {}          // vLLM's own process stays
		case <-a.tree.Died():
			a.out.Error("multiproc_executor.py:314", "Worker proc VllmWorker died unexpectedly, shutting down executor.")
			return a.tree.Close()
		}
	}
}

// stayIfTold never returns when the process was asked to end while it started,
// or is crashing. vLLM hangs for good in the first case: the signal interrupts
// the start, and nothing ends what was begun.
func (a *apiServer) stayIfTold() {
	select {
	case <-a.signals:
		if !a.sim.IgnoreTerm {
			select {}
		}
	default:
	}
	if a.crashing.Load() {
		select {}
	}
}

// crash ends this process by a fault; an exit by code takes the tree along.
func (a *apiServer) crash(c simopts.Crash) {
	c.Now(func() {
		a.crashing.Store(true)
		// The process is on its way out.
		_ = a.tree.Close()
	})
}
