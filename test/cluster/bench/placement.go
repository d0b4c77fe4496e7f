package main

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// placedPerSecond is the target of the part.
const placedPerSecond = 300

// placement counts how many requesters a second lose their scheduling gate, when the
// controller finds a thousand that carry it.
func (b *bench) placement() (rows []figures.Row, err error) {
	nodes, count := b.n(crowdNodes), b.n(1000)
	p, err := b.newPlayed("placement", nodes, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	var pods []*corev1.Pod
	for n := range count {
		pod := requesterPod("probe", fmt.Sprintf("gated-%d", n))
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: podmeta.SchedulingGate}}
		pods = append(pods, pod)
	}
	if err := errors.Join(p.makeNodes(), p.create(pods)); err != nil {
		return nil, err
	}
	if err := p.startController(); err != nil {
		return nil, err
	}
	if err := p.until("the first requester is placed", func(c *crowd) bool { return c.placed > 0 }); err != nil {
		return nil, err
	}
	err = p.profiled(2, func() error {
		return p.until("all requesters are placed", func(c *crowd) bool { return c.placed == count })
	})
	if err != nil {
		return nil, err
	}
	writes, err := readAudit(b.ctx, p.AuditLog(), pods[count-1].Name, func(w *write) bool { return w.byController() })
	if err != nil {
		return nil, err
	}
	_, took := byController(writes)
	p.controller.stop()
	bare, err := p.bareWrites(pods, 1)
	if err != nil {
		return nil, err
	}
	rate := float64(count) / took.Seconds()
	return []figures.Row{{
		Figure:  fmt.Sprintf("%d requesters with a scheduling gate at once, %d nodes: placed a second; bare: a client that does nothing but write once to each", count, nodes),
		Samples: count, Ours: fmt.Sprintf("%.0f", rate), Bare: fmt.Sprintf("%.0f", bare), Beside: fmt.Sprintf("%.2f×", rate/bare),
		Target: fmt.Sprintf("≥ %d", placedPerSecond), Met: rate >= placedPerSecond,
	}}, nil
}
