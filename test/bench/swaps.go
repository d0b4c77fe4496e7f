package main

import (
	"errors"
	"fmt"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// Bounds of what a swap may take beyond the engines' own time.
const (
	swapP50 = 5 * time.Millisecond
	swapP99 = 20 * time.Millisecond
)

// pair is two engines that take turns, one of which is awake: under a launcher
// and bare.
type pair struct {
	n     *node
	bare  [2]*bareEngine
	awake int // which of the two; the same on both sides
	gpus  string

	ours, own times
}

func (b *bench) newPair(name string, args ...string) (p *pair, err error) {
	n, err := b.newNode(name)
	if err != nil {
		return nil, err
	}
	p = &pair{n: n, awake: 1}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	if p.gpus, err = b.bareGPUs(name + "-bare"); err != nil {
		return p, err
	}
	for i := range p.bare {
		in := spec(0, args...)
		if _, err := n.swap(launcherapi.SwapIn{ID: fmt.Sprintf("e%d", i), Args: in.Args, GPUUUIDs: in.GPUUUIDs}); err != nil {
			return p, err
		}
		if p.bare[i], err = b.startBare(p.gpus, nil, args...); err != nil {
			return p, err
		}
		if i == 0 {
			if err := p.bare[0].post(b.ctx, "/sleep?level=1"); err != nil {
				return p, err
			}
		}
	}
	return p, nil
}

func (p *pair) stop() error {
	err := p.n.stop()
	for _, e := range p.bare {
		if e != nil {
			err = errors.Join(err, e.stop())
		}
	}
	return err
}

// swap brings one in and gives how long the call took.
func (n *node) swap(in launcherapi.SwapIn) (time.Duration, error) {
	began := now()
	_, err := n.client.Swap(n.b.ctx, launcherapi.SwapRequest{In: &in}, nil)
	return now().since(began), err
}

// turn swaps to the other engine: bare, by the engines' own calls one after the
// other, and by the launcher.
func (p *pair) turn() error {
	ctx, out, in := p.n.b.ctx, p.awake, 1-p.awake
	began := now()
	err := p.bare[out].post(ctx, "/sleep?level=1")
	if err == nil {
		err = p.bare[in].post(ctx, "/wake_up")
	}
	if err != nil {
		return fmt.Errorf("cannot swap bare engines: %w", err)
	}
	p.own = append(p.own, now().since(began))
	took, err := p.n.swap(launcherapi.SwapIn{InstanceID: fmt.Sprintf("e%d", in)})
	if err != nil {
		return err
	}
	p.ours = append(p.ours, took)
	p.awake = in
	return nil
}

func (p *pair) turns(count int) error {
	for range count {
		if err := p.turn(); err != nil {
			return err
		}
	}
	return nil
}

// beyond is the row of swaps less the median of what the engines took.
func beyond(figure string, ours, own times) row {
	r := figures.Timed("swap, beyond the engines' own time: "+figure, ours.Minus(own.P50()), nil, swapP50, swapP99)
	r.Bare = own.String()
	r.Beside = fmt.Sprintf("%.2f×", float64(ours.P50())/float64(own.P50()))
	return r
}

// swaps takes a thousand turns between two engines that sleep and wake as fast
// as they can, and counts what is left afterwards.
func (b *bench) swaps() (rows []row, err error) {
	p, err := b.newPair("swaps")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.turns(20); err != nil {
		return nil, err
	}
	p.ours, p.own = nil, nil
	before, err := p.n.held(nil)
	if err != nil {
		return nil, err
	}
	count := b.n(1000)
	if err := p.turns(count); err != nil {
		return nil, err
	}
	after, err := p.n.held(&before)
	if err != nil {
		return nil, err
	}
	return []row{
		beyond("sleeper in, sleep and wake at once; bare: /sleep and /wake_up", p.ours, p.own),
		leftOver("held after 1,000 swaps", count, before, after),
	}, nil
}

// slowSwaps takes turns between engines that took 2 s to load and take 100 ms
// to sleep and to wake.
func (b *bench) slowSwaps() (rows []row, err error) {
	p, err := b.newPair("slow-swaps", "--sim-load-time=2s", "--sim-sleep-time=100ms", "--sim-wake-time=100ms")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.turns(b.n(40)); err != nil {
		return nil, err
	}
	return []row{beyond("sleeper in, 100 ms to sleep and to wake, loaded in 2 s; bare: /sleep and /wake_up", p.ours, p.own)}, nil
}

// coldSwaps swaps to engines that are new and take 2 s to load.
func (b *bench) coldSwaps() (rows []row, err error) {
	p, err := b.newPair("cold-swaps")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	const load = "--sim-load-time=2s"
	var ours, own times
	for i := range b.n(6) {
		took, err := p.coldBare(load)
		if err != nil {
			return nil, err
		}
		own = append(own, took)
		in := spec(0, load)
		id := fmt.Sprintf("cold-%d", i)
		if took, err = p.n.swap(launcherapi.SwapIn{ID: id, Args: in.Args, GPUUUIDs: in.GPUUUIDs}); err != nil {
			return nil, err
		}
		ours = append(ours, took)
		if _, err := p.n.client.Delete(b.ctx, id); err != nil {
			return nil, err
		}
		if _, err := p.n.client.Wake(b.ctx, fmt.Sprintf("e%d", p.awake), launcherapi.WakeRequest{}); err != nil {
			return nil, err
		}
	}
	return []row{beyond("new one in, loads in 2 s; bare: /sleep, then os/exec until healthy", ours, own)}, nil
}

// coldBare puts the bare engine that is awake to sleep, starts another in its
// place, ends that, and wakes the first again. It gives the time of the first
// two steps.
func (p *pair) coldBare(load string) (took time.Duration, err error) {
	ctx, out := p.n.b.ctx, p.bare[p.awake]
	began := now()
	if err := out.post(ctx, "/sleep?level=1"); err != nil {
		return 0, err
	}
	e, err := p.n.b.startBare(p.gpus, nil, load)
	if err != nil {
		return 0, err
	}
	if err := e.stop(); err != nil {
		return 0, err
	}
	return e.healthy.since(began), out.post(ctx, "/wake_up")
}
