// Package patience says how long a test waits for something that has to happen.
//
// Such a wait costs nothing while the test passes, so it may be generous. It must be
// bounded, so that a test that fails says what it waited for. A bound in seconds fits one
// machine: it fails on a slower one where nothing is wrong. The bounds here therefore grow
// with the time that this machine takes for a known piece of work.
//
//	require.Eventually(t, served, patience.Wait(), time.Millisecond)
//
// The package is not for times that are tested themselves, nor for time that a test
// simulates, nor for waits that show that nothing happens.
package patience

import (
	"crypto/sha256"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// usual and long are the bounds on a machine that takes at most the reference time.
	usual = 90 * time.Second
	long  = 10 * time.Minute
	// reference is what the work takes on two quiet cores of 2024.
	reference = 40 * time.Millisecond
	// slowest bounds how much longer tests wait, so that a wait that is in vain ends before
	// the time of `go test` does.
	slowest = 4
)

// Wait bounds a wait for something that this machine does in seconds: a process that
// starts, a request that is answered, a Pod that becomes ready. It is at least ninety seconds.
func Wait() time.Duration { return scaled(usual, slowness()) }

// LongWait bounds a wait for something that takes a minute or more on a fast machine: real
// vLLM that starts, a Kubernetes that comes up. It is at least ten minutes.
func LongWait() time.Duration { return scaled(long, slowness()) }

// slowness is measured once per process, at the first wait.
var slowness = sync.OnceValue(func() float64 { return float64(measure()) / float64(reference) })

// scaled returns a bound for a machine that is slower than the reference by a factor.
func scaled(bound time.Duration, slower float64) time.Duration {
	return time.Duration(float64(bound) * min(max(slower, 1), slowest))
}

// measure returns how long this machine takes for the known piece of work: all its
// processors calculate side by side, then some programs are started one after the other.
// Other work that the machine does meanwhile counts, as it does in the tests.
func measure() time.Duration {
	began := now()
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			block := make([]byte, 1<<20)
			for range 16 {
				sum := sha256.Sum256(block)
				copy(block, sum[:])
			}
		})
	}
	all.Wait()
	for range 8 {
		_ = exec.Command("true").Run() // where it cannot be started, the attempt is the work
	}
	return now() - began
}

// now reads the machine's clock: time.Now is simulated in a synctest bubble.
func now() time.Duration {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err) // every Linux has this clock
	}
	return time.Duration(at.Nano())
}
