package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// Sizes of a crowd, and what the larger one may take of the smaller one's time.
const (
	fewInstances  = 10
	manyInstances = 200
	crowdFactor   = 2
)

// small are arguments of an engine that holds as little as one can.
var small = []string{"--gpu-memory-utilization", "0.001", "--sim-residue=1MiB"}

// crowded are the times of what a launcher does among so many instances.
type crowded struct{ create, list, gpus, swap, event times }

// crowd times a launcher with ten instances and then with two hundred, all but
// one asleep, without a foreign process on the GPU and with one. The bare
// figures are those of ten.
func (b *bench) crowd() (rows []row, err error) {
	p, err := b.newPair("crowd", "--sim-residue=1MiB")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	gpus, err := simgpu.Open(p.n.gpus)
	if err != nil {
		return nil, err
	}
	var seen [2][2]crowded // few and many, without a foreign process and with one
	have := len(p.bare)
	for i, size := range []int{fewInstances, manyInstances} {
		if err := p.n.fill(have, size); err != nil {
			return nil, err
		}
		have = size
		for j, foreign := range []uint64{0, 1 << 30} {
			if err := gpus.Set(harness.GPU(0), os.Getpid(), foreign); err != nil {
				return nil, err
			}
			if seen[i][j], err = p.among(); err != nil {
				return nil, err
			}
		}
		if err := gpus.Set(harness.GPU(0), os.Getpid(), 0); err != nil {
			return nil, err
		}
	}
	for j, with := range []string{"", ", a foreign process on the GPU"} {
		few, many := seen[0][j], seen[1][j]
		for _, f := range []struct {
			figure    string
			many, few times
		}{
			{"create call", many.create, few.create},
			{"GET /v2/vllm/instances", many.list, few.list},
			{"GET /v2/gpus", many.gpus, few.gpus},
			{"swap, beyond the engines' own time", many.swap, few.swap},
			{"change of state → event at a watcher", many.event, few.event},
		} {
			rows = append(rows, beside(fmt.Sprintf("%d instances%s: %s; bare: %d instances", manyInstances, with, f.figure, fewInstances), f.many, f.few))
		}
	}
	return rows, nil
}

// beside is the row of a time that may take so many times that of a smaller
// crowd.
func beside(figure string, many, few times) row {
	return row{
		Figure: figure + " (ms)", Samples: len(many), Ours: many.String(), Bare: few.String(), Beside: ratio(many.P50(), few.P50()),
		Target: fmt.Sprintf("p50 ≤ %d×", crowdFactor), Met: many.P50() <= crowdFactor*few.P50(),
	}
}

// fill makes sleepers until there are so many instances.
func (n *node) fill(have, want int) error {
	var running sync.WaitGroup
	errs := make([]error, side)
	for s := range side {
		running.Go(func() {
			for i := have + s; i < want && errs[s] == nil; i += side {
				id := fmt.Sprintf("crowd-%d", i)
				if _, errs[s] = n.awake(id, spec(i%2, small...)); errs[s] == nil {
					_, errs[s] = n.client.Sleep(n.b.ctx, id, launcherapi.SleepRequest{Level: 1})
				}
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// among takes the times with the instances that there are.
func (p *pair) among() (c crowded, err error) {
	for i := range p.n.b.n(30) {
		took, err := p.n.createAndDelete(fmt.Sprintf("more-%d-%d", now(), i))
		if err != nil {
			return c, err
		}
		c.create = append(c.create, took)
	}
	for range p.n.b.n(100) {
		for _, get := range []struct {
			path string
			into *times
		}{{"/v2/vllm/instances", &c.list}, {"/v2/gpus", &c.gpus}} {
			began := now()
			if err := ask(p.n.b.ctx, http.DefaultClient, http.MethodGet, p.n.url+get.path); err != nil {
				return c, err
			}
			*get.into = append(*get.into, now().since(began))
		}
	}
	a, err := p.n.gather(1)
	if err != nil {
		return c, err
	}
	defer a.leave()
	p.ours, p.own = nil, nil
	for turn := range p.n.b.n(50) {
		if err := p.turn(); err != nil {
			return c, err
		}
		if err := a.await(p.n.b.ctx, turn+1); err != nil {
			return c, err
		}
	}
	c.swap, c.event = p.ours.Minus(p.own.P50()), a.took
	return c, nil
}

// createAndDelete makes one more instance, on the other GPU, and ends it again.
// It gives the time of the first call.
func (n *node) createAndDelete(id string) (time.Duration, error) {
	began := now()
	if _, err := n.client.Create(n.b.ctx, id, spec(1, small...)); err != nil {
		return 0, err
	}
	took := now().since(began)
	if _, err := n.watcher.await(n.b.ctx, id, "awake"); err != nil {
		return 0, err
	}
	_, err := n.client.Delete(n.b.ctx, id)
	return took, err
}
