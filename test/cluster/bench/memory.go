package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"hotseat.dev/hotseat/test/figures"
)

// settle is how long the controller has nothing to do before its memory is read:
// Go's runtime collects garbage every two minutes at least.
const settle = 130 * time.Second

// memory reads the controller's memory without Pods, and with ten thousand: a
// launcher on each of a thousand nodes, the others requesters that are served.
func (b *bench) memory() (rows []figures.Row, err error) {
	nodes := b.n(mostNodes)
	count := 9 * nodes
	p, err := b.newPlayed("memory", nodes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.startController(); err != nil {
		return nil, err
	}
	p.rest()
	idle, err := p.resident("VmRSS")
	if err != nil {
		return nil, err
	}
	if err := p.makeNodes(); err != nil {
		return nil, err
	}
	began := time.Now()
	for made := 0; made < count; made += nodes { // as many at once as there are nodes
		if err := p.come(p.requesters(nodes)); err != nil {
			return nil, err
		}
		b.say("memory: %s after %s", p.crowd, time.Since(began).Round(time.Second))
	}
	p.rest()
	full, err := p.resident("VmRSS")
	if err != nil {
		return nil, err
	}
	most, err := p.resident("VmHWM")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(p.profile("heap"), p.profile("goroutine")); err != nil {
		return nil, err
	}
	return []figures.Row{{
		Figure:  fmt.Sprintf("controller with %d Pods, %d of them launchers, the others requesters that are served: resident memory; bare: without Pods", nodes+count, nodes),
		Samples: 1, Ours: fmt.Sprintf("%s (at most %s)", mb(full), mb(most)), Bare: mb(idle), Beside: fmt.Sprintf("%+.1f MB", float64(full-idle)/1e6),
		Target: "≤ " + mb(memoryAbove) + " more", Met: full-idle <= memoryAbove,
	}}, nil
}

// rest waits until the controller's memory is what it needs.
func (p *played) rest() {
	select {
	case <-time.After(time.Duration(float64(settle) * min(1, p.b.scale))):
	case <-p.ctx.Done():
	}
}

// resident reads a size of the controller, in bytes.
func (p *played) resident(name string) (int, error) {
	value := figures.Field(fmt.Sprintf("/proc/%d/status", p.controller.cmd.Process.Pid), name)
	kb, err := strconv.Atoi(strings.TrimSuffix(value, " kB"))
	if err != nil {
		return 0, fmt.Errorf("cannot read the controller's %s: %w", name, errors.Join(err, context.Cause(p.ctx)))
	}
	return kb * 1024, nil
}

func mb(bytes int) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }
