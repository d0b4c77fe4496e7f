package main

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// held is what a launcher holds at rest.
type held struct{ processes, descriptors, goroutines int }

// restTime is what idle connections and the like are given to end.
const restTime = 15 * time.Second

// held counts once nobody is connected; the numbers are waited for until they
// are no more than before, which may take the end of idle connections.
func (n *node) held(before *held) (held, error) {
	var h held
	n.watcher.stop()
	n.client.Close()
	deadline := time.Now().Add(restTime)
	err := eventually(n.b.ctx, "the launcher is at rest", func() (bool, error) {
		var err error
		if h.goroutines, err = n.metric("go_goroutines"); err != nil {
			return false, err
		}
		n.client.Close()
		open, err := harness.Descriptors(n.pid())
		if err != nil {
			return false, err
		}
		h.descriptors, h.processes = len(open), len(marked(simgpu.EnvDir, n.gpus))-1
		if before == nil {
			return true, nil
		}
		back := h.goroutines <= before.goroutines && h.descriptors <= before.descriptors && h.processes <= before.processes
		return back || time.Now().After(deadline), nil
	})
	n.watcher = watch(n.client)
	return h, err
}

func (h held) String() string {
	return fmt.Sprintf("%d processes, %d descriptors, %d goroutines", h.processes, h.descriptors, h.goroutines)
}

func leftOver(figure string, samples int, before, after held) row {
	return row{
		Figure: figure, Samples: samples, Ours: after.String(), Bare: before.String() + " before",
		Beside: fmt.Sprintf("%+d, %+d, %+d", after.processes-before.processes, after.descriptors-before.descriptors, after.goroutines-before.goroutines),
		Target: "nothing more than before",
		Met:    after.processes <= before.processes && after.descriptors <= before.descriptors && after.goroutines <= before.goroutines,
	}
}

// side is how many instances of the cycles live at once.
const side = 4

// cycles makes and deletes a thousand instances, of which some are ended while
// they start, some after they were killed, and some are stubborn, and counts
// what is left.
func (b *bench) cycles() (rows []row, err error) {
	n, err := b.newNode("cycles", "--stop-grace", "100ms", "--starting-grace", "100ms")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	if err := n.cycle("warm", 2*side); err != nil {
		return nil, err
	}
	before, err := n.held(nil)
	if err != nil {
		return nil, err
	}
	count := b.n(1000)
	if err := n.cycle("cycle", count); err != nil {
		return nil, err
	}
	after, err := n.held(&before)
	if err != nil {
		return nil, err
	}
	return []row{leftOver("left over after 1,000 create/delete cycles", count, before, after)}, nil
}

func (n *node) cycle(name string, count int) error {
	var running sync.WaitGroup
	errs := make([]error, side)
	for s := range side {
		running.Go(func() {
			for i := s; i < count && errs[s] == nil; i += side {
				errs[s] = n.oneCycle(fmt.Sprintf("%s-%d", name, i), i/side)
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// oneCycle makes an instance and deletes it, in one of several ways in turn.
func (n *node) oneCycle(id string, way int) error {
	ctx, s := n.b.ctx, spec(way%2, "--gpu-memory-utilization", "0.05")
	switch way % 4 {
	case 0: // ended while awake
		if _, err := n.awake(id, s); err != nil {
			return err
		}
	case 1: // ended while it starts
		if _, err := n.client.Create(ctx, id, s); err != nil {
			return err
		}
	case 2: // ended after it died
		made, err := n.awake(id, s)
		if err != nil {
			return err
		}
		if err := syscall.Kill(made.PID, syscall.SIGKILL); err != nil {
			return fmt.Errorf("cannot kill an engine: %w", err)
		}
		if _, err := n.watcher.await(ctx, id, "failed"); err != nil {
			return err
		}
	case 3: // ended against its will
		s.Args = append(s.Args, "--sim-ignore-term", "--sim-stray=double-fork")
		if _, err := n.awake(id, s); err != nil {
			return err
		}
	}
	_, err := n.client.Delete(ctx, id)
	return err
}
