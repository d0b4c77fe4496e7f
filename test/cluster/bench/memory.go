package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"hotseat.dev/hotseat/test/helpers/figures"
)

// settle is how long the controller has nothing to do before its memory is read:
// Go's runtime collects garbage every two minutes at least.
const settle = 130 * time.Second

// memory reads the controller's memory without Pods, and with ten thousand: a launcher
// and an agent on each of a thousand nodes, the others requesters that are served.
// Beside it stands a process that does nothing but keep the same Pods in a cache.
func (b *bench) memory() (rows []figures.Row, err error) {
	nodes := b.n(mostNodes)
	count := 8 * nodes
	p, err := b.newPlayed("memory", nodes, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.startController(); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find this program: %w", err)
	}
	bare, err := p.start("bare-cache", []string{bareCacheEnv + "=" + p.file("kwok")}, self)
	if err != nil {
		return nil, err
	}
	p.rest(settle)
	idle, err := p.resident(p.controller, "VmRSS")
	if err != nil {
		return nil, err
	}
	bareIdle, err := p.resident(bare, "VmRSS")
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
	p.rest(settle)
	full, err := p.resident(p.controller, "VmRSS")
	if err != nil {
		return nil, err
	}
	bareFull, err := p.resident(bare, "VmRSS")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(p.profile("heap?gc=1"), p.profile("goroutine")); err != nil {
		return nil, err
	}
	ours, theirs := full-idle, bareFull-bareIdle
	row := figures.Row{
		Figure:  fmt.Sprintf("resident memory for %d Pods, %d of them launchers, as many agents, the others requesters that are served, above that of none (%s); bare: a process that does nothing but keep them in client-go's cache", 2*nodes+count, nodes, mb(idle)),
		Samples: 1, Ours: mb(ours), Bare: mb(theirs),
	}
	atMost(&row, float64(ours), float64(theirs), mostMemory)
	return []figures.Row{row}, nil
}

// rest waits until the controller's memory is what it needs.
func (p *played) rest(full time.Duration) {
	select {
	case <-time.After(time.Duration(float64(full) * min(1, p.b.scale))):
	case <-p.ctx.Done():
	}
}

// resident reads a size of a program, in bytes.
func (p *played) resident(g *program, name string) (int, error) {
	value := figures.Field(fmt.Sprintf("/proc/%d/status", g.cmd.Process.Pid), name)
	kb, err := strconv.Atoi(strings.TrimSuffix(value, " kB"))
	if err != nil {
		return 0, fmt.Errorf("cannot read the %s of %s: %w", name, g.name, errors.Join(err, context.Cause(p.ctx)))
	}
	return kb * 1024, nil
}

func mb(bytes int) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }
