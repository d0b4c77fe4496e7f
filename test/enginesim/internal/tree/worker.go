package tree

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"hotseat.dev/hotseat/test/enginesim/internal/gpumem"
	"hotseat.dev/hotseat/test/enginesim/internal/hostmem"
	"hotseat.dev/hotseat/test/enginesim/internal/link"
	"hotseat.dev/hotseat/test/enginesim/internal/simopts"
	"hotseat.dev/hotseat/test/enginesim/internal/vlog"
)

// worker is the process that holds the memory of one GPU.
type worker struct {
	log     *vlog.Logger
	calls   sync.Mutex      // one call at a time
	weights hostmem.Weights // of whoever holds calls

	mu   sync.Mutex
	boot Boot
	gpu  *gpumem.Memory
}

func runWorker(name string) {
	w := &worker{log: vlog.New(os.Stdout, strings.TrimPrefix(name, prefix))}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for range stop {
			if b, _ := w.state(); !b.Settings.IgnoreTerm {
				w.leave()
			}
		}
	}()
	if err := link.Inherited().Serve(w.handle); err != nil {
		w.log.Error("multiproc_executor.py:900", "%v", err)
	}
	w.log.Info("multiproc_executor.py:836", "Parent process exited, terminating worker queues")
	w.leave()
}

func (w *worker) state() (Boot, *gpumem.Memory) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.boot, w.gpu
}

// leave gives the memory back and ends the process.
func (w *worker) leave() {
	_, gpu := w.state()
	if err := gpu.Leave(); err != nil {
		w.log.Error("gpu_worker.py:1100", "%v", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (w *worker) handle(call link.Call) error {
	w.calls.Lock()
	defer w.calls.Unlock()
	b, gpu := w.state()
	s := b.Settings
	switch call.Op {
	case opBoot:
		return w.load(call.Boot)
	case OpSleep:
		return w.sleep(s, gpu, call.Level)
	case OpWake:
		w.crash(s.CrashAtWake, s)
		time.Sleep(s.WakeTime)
		// Weights and KV cache are taken for halves of the memory.
		return gpu.Wake(1 - float64(len(call.Tags))/2)
	case OpReach:
		return nil
	case OpReload:
		return w.weights.Load(s.WeightsBytes, s.WeightsFile)
	}
	return fmt.Errorf("unknown call %q", call.Op)
}

func (w *worker) load(data []byte) error {
	var b Boot
	if err := json.Unmarshal(data, &b); err != nil {
		return fmt.Errorf("cannot read the boot call: %w", err)
	}
	s := b.Settings
	gpu, err := gpumem.Open(gpumem.Options{
		Dir: b.GPUDir, Visible: b.Visible, LocalRank: b.Replica*b.world() + b.Rank, Utilization: b.Utilization,
		Residue: s.ResidueBytes, Engine: b.API, Model: b.Model, LateAfterExit: s.FreeLateAfterExit,
	})
	w.mu.Lock()
	w.boot, w.gpu = b, gpu
	w.mu.Unlock()
	if err == nil {
		err = gpu.Load()
	}
	if err == nil {
		err = w.fill(b)
	}
	if err != nil {
		w.log.Error("multiproc_executor.py:870", "WorkerProc failed to start.\nTraceback (most recent call last):\n%v", err)
		return err
	}
	if s.CrashAtReady.Due("worker", s.OnceFile) {
		go s.CrashAtReady.Now(func() {})
	}
	return nil
}

// fill loads the weights, or fails as the faults say.
func (w *worker) fill(b Boot) error {
	s := b.Settings
	w.log.Info("gpu_model_runner.py:5010", "Starting to load model %s...", b.Path)
	began := time.Now()
	w.crash(s.CrashAtLoad, s)
	w.chatter(s)
	if s.HangAtLoad.Take() && simopts.Once(s.OnceFile) {
		select {}
	}
	time.Sleep(s.LoadTime)
	if s.OutOfMemory {
		return errors.New(outOfMemory)
	}
	if err := w.weights.Load(s.WeightsBytes, s.WeightsFile); err != nil {
		return err
	}
	w.log.Info("default_loader.py:430", "Loading weights took %.2f seconds", time.Since(began).Seconds())
	return w.compile(b)
}

// crash ends this process when the fault is one of a worker.
func (w *worker) crash(fault simopts.Crash, s simopts.Settings) {
	if fault.Due("worker", s.OnceFile) {
		fault.Now(func() {})
	}
}

func (w *worker) sleep(s simopts.Settings, gpu *gpumem.Memory, level int) error {
	w.crash(s.CrashAtSleep, s)
	time.Sleep(s.SleepTime)
	if level == 2 {
		if err := w.weights.Drop(); err != nil {
			return err
		}
	}
	before, _ := gpu.Held()
	if err := gpu.Sleep(s.FreeLateAfterSleep, func(err error) { w.log.Error("gpu_worker.py:276", "%v", err) }); err != nil {
		return err
	}
	after, _ := gpu.Held()
	w.log.Info("gpu_worker.py:276", "Sleep mode freed %s GiB memory, %s GiB memory is still in use.", gpumem.GiB(before-after), gpumem.GiB(after))
	return nil
}

// chatter writes the log lines that faults ask for.
func (w *worker) chatter(s simopts.Settings) {
	for i := range s.LogLines {
		w.log.Info("weight_utils.py:895", "line %d of %d", i+1, s.LogLines)
	}
	for range s.LogNotUTF8 {
		w.log.Raw([]byte("(Worker) not UTF-8: \xff\xfe\x80 caf\xe9\n"))
	}
	if s.LogLongLine > 0 {
		w.log.Raw(append(slices.Repeat([]byte("x"), int(s.LogLongLine)), '\n'))
	}
}

// outOfMemory is what PyTorch says when a GPU has too little memory.
const outOfMemory = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 0 has a total capacity of 79.11 GiB of which 257.56 MiB is free. Including non-PyTorch memory, this process has 78.85 GiB memory in use. Of the allocated memory 78.10 GiB is allocated by PyTorch, and 78.05 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
