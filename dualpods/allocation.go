package dualpods

import "time"

// Allocation is what the kubelet has said of the GPUs of a requester.
type Allocation struct {
	GPUs  []string  // UUIDs; none: it is not known which it has
	Early bool      // the kubelet said so before the requester program ran
	Why   string    // it is not known
	Since time.Time // when it was asked for in vain first
	Again time.Time // when it is asked for next
}

// Bounds of the pause before a kubelet is asked again.
const (
	FirstAllocationPause   = 50 * time.Millisecond
	AheadAllocationPause   = 10 * time.Millisecond // before the requester program runs
	LongestAllocationPause = 5 * time.Second
)

func firstPause(running bool) time.Duration {
	if running {
		return FirstAllocationPause
	}
	return AheadAllocationPause
}

// IsKnown reports whether the kubelet need not be asked again about a requester whose program
// runs, or does not yet: what it has given to a container stays given.
func (a *Allocation) IsKnown(running bool) bool { return len(a.GPUs) > 0 && (!a.Early || !running) }

// AskedInVain returns the Allocation after the kubelet was asked once more and did not say it.
func (a Allocation) AskedInVain(now time.Time, why string, running bool) Allocation {
	if a.Since.IsZero() {
		a.Since = now
	}
	a.Why, a.Again = why, now.Add(min(max(now.Sub(a.Since)/4, firstPause(running)), LongestAllocationPause))
	return a
}

// Until returns how long to wait until the kubelet is asked next.
func (a *Allocation) Until(now time.Time, running bool) time.Duration {
	return max(a.Again.Sub(now), firstPause(running))
}
