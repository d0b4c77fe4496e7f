package decide

import (
	"fmt"
	"time"

	"hotseat.dev/hotseat/spec/podmeta"
)

// settled is for how long an instance has to serve until what failed before
// counts no more, and secondStart the pause before it is started again that has
// ended twice: as a kubelet has it with containers.
// (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-restarts)
const (
	Settled     = 10 * time.Minute
	SecondStart = 10 * time.Second
)

// failureRecorded reports whether the launcher Pod has it that the instance ended while it
// served this requester; if the requester stays then, that it ended by this attempt.
func (b *Bound) failureRecorded() bool {
	f := b.Failures
	return f != nil && f.RequesterUID == b.Requester.UID && (!b.staysAtExit() || f.Attempt == b.Record.SwapKey())
}

// failuresNow returns the failures of the instance, with the one that is seen now.
func (b *Bound) failuresNow() podmeta.Failures {
	f := podmeta.Failures{RequesterUID: b.Requester.UID, Attempt: b.Record.SwapKey(), Count: 1, Last: b.Now, Why: b.fate()}
	justBegun := b.Requester.ServesSince.IsZero() // its gate is open, its status not written yet
	if b.Failures != nil && (justBegun || b.Now.Sub(b.Requester.ServesSince) < Settled) {
		f.Count += b.Failures.Count
	}
	return f
}

// notBefore returns a record. Its attempt is made later if the instance has ended again and again
// soon after it served.
func notBefore(record podmeta.Binding, f *podmeta.Failures, now time.Time) podmeta.Binding {
	if f == nil || f.Count == 1 { // who ends once is started again at once
		return record
	}
	last := f.Last
	if last.After(now) { // somebody wrote it
		last = now
	}
	if at := last.Add(PauseAfter(SecondStart, f.Count-1)); at.After(now) {
		record.RetryAt = at
		record.Failure = fmt.Sprintf("instance %s ended %d times soon after it served; at last it %s", record.Instance, f.Count, f.Why)
	}
	return record
}

// attemptAt returns when the record's attempt is to be made. A time that is farther away than
// any pause is of a controller whose clock was ahead, and does not count.
func (b *Bound) attemptAt() time.Time {
	if at := b.Record.RetryAt; at.Sub(b.Now) <= 2*LongestPause { // clocks may differ by minutes
		return at
	}
	return time.Time{}
}

// failedSo says what failed before the attempt that is to be made later.
func (b *Bound) failedSo() string {
	if b.Record.Attempt == 1 {
		return b.Record.Failure
	}
	return fmt.Sprintf("attempt %d on launcher %s failed: %s", b.Record.Attempt-1, b.Launcher.Name, b.Record.Failure)
}

func (b *Bound) retryAt() string { return b.Record.RetryAt.UTC().Format(time.RFC3339) }

// Bounds of the pause before a server is tried again.
const (
	FirstPause   = time.Second
	LongestPause = 5 * time.Minute
)

// PauseAfter returns the pause after so many failures, one after the other: twice as long each
// time.
func PauseAfter(first time.Duration, failures int) time.Duration {
	if shift := failures - 1; shift < 20 {
		return min(LongestPause, first<<shift)
	}
	return LongestPause
}
