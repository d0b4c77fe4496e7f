package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// Variables by which an engine is told where to write the moment of its first
// instruction, and that at which it began to answer.
const (
	firstEnv = "ENGINESIM_STAMP"
	readyEnv = "ENGINESIM_READY_STAMP"
)

// lives are the moments of engines' lives that are measured.
type lives struct{ first, ready, death times }

// life times the start, the readiness and the death of an engine: one under
// the launcher, one bare, in turn.
func (b *bench) life() (rows []row, err error) {
	n, err := b.newNode("life")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	gpus, err := b.bareGPUs("life-bare")
	if err != nil {
		return nil, err
	}
	var ours, bare lives
	for i := range b.n(200) {
		if err := b.bareLife(&bare, gpus, i); err != nil {
			return nil, err
		}
		if err := n.oneLife(&ours, i); err != nil {
			return nil, err
		}
	}
	return []row{
		figures.Timed("create call → child's first instruction; bare: os/exec", ours.first, bare.first, 1500*time.Microsecond, 0),
		figures.Timed("child answers → `awake` event; bare: a loop that asks each millisecond", ours.ready, bare.ready, 0, 10*time.Millisecond),
		figures.Timed("kill −9 → `failed` event; bare: wait(2) in the parent", ours.death, bare.death, 0, 2*time.Millisecond),
	}, nil
}

func (b *bench) stamps(name string, i int) (first, ready string) {
	base := filepath.Join(b.dir, fmt.Sprintf("%s-%d", name, i))
	return base + ".first", base + ".ready"
}

// begun reads the stamps of an engine that was healthy at some moment.
func (l *lives) begun(first, ready string, began, healthy moment) error {
	f, err := stamp(first)
	if err != nil {
		return err
	}
	r, err := stamp(ready)
	if err != nil {
		return err
	}
	l.first = append(l.first, f.since(began))
	l.ready = append(l.ready, healthy.since(r))
	return nil
}

func (n *node) oneLife(l *lives, i int) error {
	ctx, id := n.b.ctx, fmt.Sprintf("life-%d", i)
	first, ready := n.b.stamps("launcher", i)
	s := spec(0)
	s.EnvVars = map[string]launcherapi.EnvValue{firstEnv: {Value: first}, readyEnv: {Value: ready}}
	began := now()
	made, err := n.client.Create(ctx, id, s)
	if err != nil {
		return err
	}
	awake, err := n.watcher.await(ctx, id, "awake")
	if err != nil {
		return err
	}
	if err := l.begun(first, ready, began, awake); err != nil {
		return err
	}
	killed := now()
	if err := syscall.Kill(made.PID, syscall.SIGKILL); err != nil {
		return fmt.Errorf("cannot kill the engine: %w", err)
	}
	failed, err := n.watcher.await(ctx, id, "failed")
	if err != nil {
		return err
	}
	l.death = append(l.death, failed.since(killed))
	_, err = n.client.Delete(ctx, id)
	return err
}

func (b *bench) bareLife(l *lives, gpus string, i int) (err error) {
	first, ready := b.stamps("bare", i)
	e, err := b.startBare(gpus, []string{firstEnv + "=" + first, readyEnv + "=" + ready})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	if err := l.begun(first, ready, e.began, e.healthy); err != nil {
		return err
	}
	killed := now()
	if err := e.kill(); err != nil {
		return err
	}
	l.death = append(l.death, now().since(killed))
	return nil
}
