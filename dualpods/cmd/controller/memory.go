package main

import (
	"context"
	"os"
	"runtime/debug"
	"time"
)

const (
	// gcPercent is how much garbage there may be beside what is kept, unless the
	// environment variable GOGC says so: what is known of a cluster is kept for long,
	// and as much again in garbage, Go's default, is memory that nobody uses.
	gcPercent = 40
	// givenBack is how often memory is given back that a peak has left. By itself Go
	// collects garbage every two minutes where little is allocated, and a stack that has
	// grown is halved by each collection.
	givenBack = time.Minute
)

// boundGarbage has little garbage gather.
func boundGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// giveBack gives memory back that nobody uses, again and again until ctx ends.
func giveBack(ctx context.Context, every time.Duration) {
	again := time.NewTicker(every)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			debug.FreeOSMemory()
		case <-ctx.Done():
			return
		}
	}
}
