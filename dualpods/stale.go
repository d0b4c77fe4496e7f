package dualpods

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IsStale reports whether all that went wrong with a write, or with each of several joined ones, is that the cache was
// behind.
func IsStale(err error) bool {
	var several interface{ Unwrap() []error }
	if !errors.As(err, &several) {
		return err != nil && (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err))
	}
	for _, one := range several.Unwrap() {
		if !IsStale(one) {
			return false
		}
	}
	return true
}

// LastWrite is the last write of this process to an object that it reads from a cache. The zero value is none.
type LastWrite struct {
	before string // the version that was written to; empty: the cache hides nothing
	at     time.Time
}

// WriteOf returns the write to version before of an object; the API server answered with version after. If both are the
// same, the write has changed nothing: no event follows, and the cache hides nothing.
func WriteOf(before, after string, at time.Time) LastWrite {
	if before == after {
		before = ""
	}
	return LastWrite{before, at}
}

// IsHidden reports whether the cache, which has a version of the object, does not show the write yet.
func (w LastWrite) IsHidden(version string) bool { return w.before != "" && w.before == version }

// Pause returns how long the next write has to wait if writes keep the given time between them; 0 or less: it need not wait.
func (w LastWrite) Pause(between time.Duration, now time.Time) time.Duration {
	return w.at.Add(between).Sub(now)
}
