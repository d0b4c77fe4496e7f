package main

import (
	"errors"
	"fmt"
	"strings"
)

// Bounds of the launcher's resident memory.
const (
	idleBytes = 20_000_000
	busyBytes = 30_000_000
	many      = 16
)

// memory reads the resident memory of a launcher that has just started, and
// with sixteen instances awake. The bare one is a process of this program that
// serves HTTP by the standard library alone.
func (b *bench) memory() (rows []row, err error) {
	n, err := b.newNode("memory")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	bare, err := b.startBareProxy(strings.TrimPrefix(n.url, "http://"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bare.stop()) }()
	plain, err := status(bare.cmd.Process.Pid, "VmRSS")
	if err != nil {
		return nil, err
	}
	idle, err := n.resident("idle launcher: resident memory; bare: a process with httputil.ReverseProxy", plain, idleBytes)
	if err != nil {
		return nil, err
	}
	for i := range many {
		if _, err := n.awake(fmt.Sprintf("one-%d", i), spec(i%2, "--gpu-memory-utilization", "0.05")); err != nil {
			return nil, err
		}
	}
	busy, err := n.resident(fmt.Sprintf("%d instances awake: the launcher's resident memory", many), plain, busyBytes)
	return []row{idle, busy}, err
}

func (n *node) resident(figure string, plain, bound int) (row, error) {
	var of [3]int
	for i, name := range []string{"VmRSS", "RssAnon", "RssFile"} {
		bytes, err := status(n.pid(), name)
		if err != nil {
			return row{}, err
		}
		of[i] = bytes
	}
	return row{
		Figure: figure, Samples: 1, Ours: fmt.Sprintf("%s (%s its own, %s of files)", mb(of[0]), mb(of[1]), mb(of[2])),
		Bare: mb(plain), Beside: fmt.Sprintf("%.1f×", float64(of[0])/float64(plain)),
		Target: "≤ " + mb(bound), Met: of[0] <= bound,
	}, nil
}

func mb(bytes int) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }
