// Package gpumem charges the simulated GPU of one worker, and records when it
// is awake there.
package gpumem

import (
	"errors"
	"math"
	"os"
	"sync"
	"time"

	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/enginesim/internal/vllmerr"
	"hotseat.dev/hotseat/test/enginesim/recorder"
)

// Options say which GPU is charged, and how much.
type Options struct {
	Dir       string // folder of simulated GPUs; "" for no accounting
	Visible   string // CUDA_VISIBLE_DEVICES, as set; "" for all
	LocalRank int    // which of the visible GPUs
	// Utilization is the part of the GPU's memory taken while awake, 0 to 1.
	Utilization float64
	Residue     uint64 // bytes kept while asleep
	Engine      int    // process ID of the API server
	Model       string // first served name
	// LateAfterExit is how long the memory counts after the process has ended,
	// however it ended.
	LateAfterExit time.Duration
}

// Memory is one worker's hold on one GPU. A nil Memory accounts for nothing.
// Its methods may be called from several goroutines.
type Memory struct {
	opts Options
	dir  *simgpu.Dir
	gpu  simgpu.GPU
	rec  *recorder.Recorder
	full uint64

	mu   sync.Mutex
	held uint64
	late *time.Timer   // gives memory back some time after a sleep
	left bool          // Leave was called
	stop chan struct{} // ends the goroutine that renews a late charge
	done chan struct{} // closed when that has ended
}

// Open finds the worker's GPU. It charges nothing yet.
func Open(opts Options) (*Memory, error) {
	if opts.Dir == "" {
		return nil, nil
	}
	dir, gpu, err := locate(opts.Dir, opts.Visible, opts.LocalRank)
	if err != nil {
		return nil, err
	}
	rec, err := recorder.New(recorder.Options{
		Dir: opts.Dir, GPU: gpu.UUID, Engine: opts.Engine, Model: opts.Model, Share: opts.Utilization,
	})
	if err != nil {
		return nil, err
	}
	m := &Memory{
		opts: opts, dir: dir, gpu: gpu, rec: rec, full: uint64(math.Ceil(float64(gpu.MemoryTotalBytes) * opts.Utilization)),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	go m.renew()
	return m, nil
}

// Hold charges bytes to this process without a record: memory of a process
// that is no worker.
func Hold(dir, visible string, bytes uint64) error {
	if dir == "" || bytes == 0 {
		return nil
	}
	d, gpu, err := locate(dir, visible, 0)
	if err != nil {
		return err
	}
	return d.Set(gpu.UUID, os.Getpid(), bytes)
}

// Load takes the memory of an engine that starts, after the check that vLLM
// makes: the part asked for must be free. The error's text is vLLM's
// (vllm/v1/worker/utils.py).
func (m *Memory) Load() error {
	if m == nil {
		return nil
	}
	return m.take(m.full, func(free uint64) error {
		return vllmerr.New("ValueError: Free memory on device cuda:%d (%s/%s GiB) on startup is less than desired GPU memory utilization (%s, %s GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
			m.opts.LocalRank, GiB(free), GiB(m.gpu.MemoryTotalBytes), decimal(m.opts.Utilization), GiB(m.full))
	})
}

// Wake takes part of the memory again, 0 to 1, in addition to the residue.
func (m *Memory) Wake(part float64) error {
	if m == nil {
		return nil
	}
	residue := m.residue()
	return m.take(residue+uint64(float64(m.full-residue)*part), func(uint64) error {
		return vllmerr.New("CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:139")
	})
}

// take records that the worker is awake and charges want, when that is free.
func (m *Memory) take(want uint64, short func(free uint64) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left {
		return errors.New("cannot take memory: the worker is leaving")
	}
	if m.late != nil {
		m.late.Stop()
		m.late = nil
	}
	return m.rec.Awake(func() error {
		err := m.reserve(want)
		if full, ok := errors.AsType[*simgpu.OutOfMemoryError](err); ok {
			return short(full.FreeBytes)
		}
		if err == nil {
			m.held = want
		}
		return err
	})
}

func (m *Memory) reserve(bytes uint64) error {
	if late := m.opts.LateAfterExit; late > 0 {
		return m.dir.ReserveUntil(m.gpu.UUID, os.Getpid(), bytes, time.Now().Add(late))
	}
	return m.dir.Reserve(m.gpu.UUID, os.Getpid(), bytes)
}

// Sleep gives back all but the residue: before it returns, or when late is not
// 0 so much later, in which case failed is called if that does not work.
func (m *Memory) Sleep(late time.Duration, failed func(error)) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if late == 0 {
		return m.release(m.residue())
	}
	var timer *time.Timer
	timer = time.AfterFunc(late, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.late != timer || m.left {
			return // woken meanwhile, or ending
		}
		m.late = nil
		if err := m.release(m.residue()); err != nil {
			failed(err)
		}
	})
	m.late = timer
	return nil
}

// Leave gives everything back, or leaves it to count for LateAfterExit, and
// takes no more. The process should end then.
func (m *Memory) Leave() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	if m.left {
		m.mu.Unlock()
		return nil
	}
	m.left = true
	if m.late != nil {
		m.late.Stop()
	}
	m.mu.Unlock()
	close(m.stop)
	<-m.done
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opts.LateAfterExit > 0 {
		return m.charge(m.held)
	}
	return m.release(0)
}

// release records that the worker is asleep and charges bytes only: in this
// order, since whoever sees the memory free may wake another at once.
func (m *Memory) release(bytes uint64) error {
	if err := m.rec.Asleep(); err != nil {
		return err
	}
	return m.charge(bytes)
}

// charge says what the process holds now. The lock is held.
func (m *Memory) charge(bytes uint64) error {
	m.held = bytes
	if late := m.opts.LateAfterExit; late > 0 {
		return m.dir.SetUntil(m.gpu.UUID, os.Getpid(), bytes, time.Now().Add(late))
	}
	return m.dir.Set(m.gpu.UUID, os.Getpid(), bytes)
}

// renew keeps the moment until which memory counts ahead of now, since a
// process that is killed cannot do so itself.
func (m *Memory) renew() {
	defer close(m.done)
	if m.opts.LateAfterExit == 0 {
		return
	}
	tick := time.NewTicker(max(m.opts.LateAfterExit/8, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-tick.C:
		}
		m.mu.Lock()
		if !m.left {
			// The next tick tries again.
			_ = m.charge(m.held)
		}
		m.mu.Unlock()
	}
}

func (m *Memory) residue() uint64 { return min(m.opts.Residue, m.full) }

// Held is what the process holds now, in bytes, of how much there is.
func (m *Memory) Held() (held, total uint64) {
	if m == nil {
		return 0, 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held, m.gpu.MemoryTotalBytes
}
