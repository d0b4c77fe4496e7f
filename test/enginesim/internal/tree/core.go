package tree

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"hotseat.dev/hotseat/test/enginesim/internal/link"
	"hotseat.dev/hotseat/test/enginesim/internal/simopts"
	"hotseat.dev/hotseat/test/enginesim/internal/vlog"
)

// core is the EngineCore process: it starts the workers, passes calls on to all
// of them, and ends when one of them dies.
type core struct {
	log  *vlog.Logger
	ends sync.Mutex // held by whoever ends the workers

	mu      sync.Mutex
	boot    Boot
	workers []*child
	over    bool // being shut down: a worker's end is no death
}

func runCore(name string) {
	c := &core{log: vlog.New(os.Stdout, strings.TrimPrefix(name, prefix))}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	go c.obey(stop)
	if err := link.Inherited().Serve(c.handle); err != nil {
		c.log.Error("core.py:1366", "%v", err)
	}
	// The API server is gone without a word. Real ones stay, and so does this.
	select {}
}

func (c *core) obey(stop <-chan os.Signal) {
	for range stop {
		if c.settings().IgnoreTerm {
			continue
		}
		c.log.Info("core.py:1342", "[shutdown] EngineCore: trigger received signal=SIGTERM")
		c.shutDown()
		os.Exit(0)
	}
}

func (c *core) settings() simopts.Settings {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boot.Settings
}

func (c *core) handle(call link.Call) error {
	s := c.settings()
	switch call.Op {
	case opBoot:
		return c.start(call.Boot)
	case OpSleep:
		c.crash(s.CrashAtSleep)
	case OpWake:
		c.crash(s.CrashAtWake)
	}
	began := time.Now()
	if err := c.all(call); err != nil {
		return err
	}
	switch took := time.Since(began).Seconds(); call.Op {
	case OpSleep:
		c.log.Info("abstract.py:346", "It took %.6f seconds to fall asleep.", took)
	case OpWake:
		c.log.Info("abstract.py:364", "It took %.6f seconds to wake up.", took)
	}
	return nil
}

// crash ends this process when the fault is one of EngineCore.
func (c *core) crash(fault simopts.Crash) {
	if fault.Due("core", c.settings().OnceFile) {
		fault.Now(c.shutDown)
	}
}

// all passes call on to every worker at once; the error is the first worker's
// that has one.
func (c *core) all(call link.Call) error {
	c.mu.Lock()
	workers := slices.Clone(c.workers)
	c.mu.Unlock()
	return together(workers, func(w *child) error { return w.link.Call(call) })
}

// together runs f for each child at once.
func together(children []*child, f func(*child) error) error {
	errs := make([]error, len(children))
	var wg sync.WaitGroup
	for i, c := range children {
		wg.Go(func() { errs[i] = f(c) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *core) start(data []byte) error {
	var b Boot
	if err := json.Unmarshal(data, &b); err != nil {
		return fmt.Errorf("cannot read the boot call: %w", err)
	}
	c.mu.Lock()
	c.boot = b
	c.mu.Unlock()
	c.log.Info("core.py:123", "Initializing a V1 LLM engine (v%s) with config: model='%s', tensor_parallel_size=%d, pipeline_parallel_size=%d, data_parallel_size=%d", Version, b.Path, b.TP, b.PP, b.DP)
	c.crash(b.Settings.CrashAtLoad)
	began := time.Now()
	if err := c.load(b); err != nil {
		c.log.Error("core.py:1366", "EngineCore failed to start.\nTraceback (most recent call last):\nException: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.")
		c.shutDown()
		return err
	}
	if err := startStray(b); err != nil {
		return err
	}
	c.log.Info("core.py:379", "init engine (profile, create kv cache, warmup model) took %.2f s", time.Since(began).Seconds())
	if s := b.Settings; s.CrashAtReady.Due("core", s.OnceFile) {
		go s.CrashAtReady.Now(c.shutDown)
	}
	return nil
}

// load starts the workers and waits until each has loaded the model.
func (c *core) load(b Boot) error {
	ranks := map[*child]Boot{}
	var workers []*child
	for rank := range b.world() {
		mine := b
		mine.Rank = rank
		w, err := spawn(mine.workerName(), nil)
		if err != nil {
			return err
		}
		ranks[w] = mine
		workers = append(workers, w)
		c.mu.Lock()
		c.workers = append(c.workers, w)
		c.mu.Unlock()
	}
	if err := together(workers, func(w *child) error { return w.boot(ranks[w]) }); err != nil {
		return err
	}
	for _, w := range workers {
		go c.watch(w)
	}
	return nil
}

// watch ends this process when a worker dies that was not asked to.
func (c *core) watch(w *child) {
	<-w.done
	c.mu.Lock()
	over := c.over
	c.mu.Unlock()
	if over {
		return
	}
	c.log.Error("multiproc_executor.py:314", "Worker proc VllmWorker-%d died unexpectedly (exit code: %d), shutting down executor.", c.rank(w), exitCode(w))
	c.log.Error("core.py:1368", "EngineCore encountered a fatal error.")
	c.shutDown()
	os.Exit(1)
}

func (c *core) rank(w *child) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Index(c.workers, w)
}

// exitCode is a child's exit code as Python gives it: minus the signal's number
// when a signal ended it.
func exitCode(c *child) int {
	if ws, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return -int(ws.Signal())
	}
	return c.cmd.ProcessState.ExitCode()
}

// shutDown ends the workers, and waits for them whoever began it.
func (c *core) shutDown() {
	c.ends.Lock()
	defer c.ends.Unlock()
	c.mu.Lock()
	c.over = true
	workers := slices.Clone(c.workers)
	c.mu.Unlock()
	end(workers, 5*time.Second)
}
