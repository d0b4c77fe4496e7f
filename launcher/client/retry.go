package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Bounds of the time between two attempts to take up a stream again.
const (
	firstRetry = 25 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// retries is a row of attempts, each later than the one before it.
type retries struct{ next time.Duration }

func (c *Client) retries() *retries { return &retries{next: firstRetry} }

// reset begins a new row, after an attempt that got somewhere.
func (r *retries) reset() { r.next = firstRetry }

// wait lets some time pass: up to twice as much each time, so that many clients
// do not come back all at once.
func (r *retries) wait(ctx context.Context) error {
	timer := time.NewTimer(r.next/2 + rand.N(r.next/2)) //nolint:gosec // no secret
	defer timer.Stop()
	r.next = min(2*r.next, lastRetry)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// temporary says whether another attempt may end better: the launcher could not
// be reached, broke off, or is going down. What it refuses stays refused.
func temporary(err error) bool {
	e, ok := errors.AsType[*launcher.Error](err)
	if !ok {
		return true
	}
	switch e.Code {
	case launcherapi.CodeUnavailable, launcherapi.CodeInternal, launcherapi.CodeTooMany,
		launcherapi.CodeEngineFailed, launcherapi.CodeEngineTimeout: // 502 and 504 come from a proxy here
		return true
	}
	return false
}
