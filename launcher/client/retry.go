package client

import (
	"context"
	"errors"
	"fmt"
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

// retries makes attempts to take up one stream, after pauses that grow.
type retries struct {
	c    *Client
	next time.Duration
	lost time.Time // when the stream broke off; zero while it lasts
}

func (c *Client) retries() *retries { return &retries{c: c, next: firstRetry} }

// connected says that the launcher has answered.
func (r *retries) connected() { r.lost = time.Time{} }

// reset makes the next pause the shortest again, after an attempt that brought
// events.
func (r *retries) reset() { r.next = firstRetry }

// again waits after an attempt that ended with err. It returns an error when there
// is to be no other attempt.
func (r *retries) again(ctx context.Context, err error) error {
	limited := r.c.reconnect > 0
	switch {
	case limited && !r.c.reached.Load():
		return err
	case r.lost.IsZero():
		r.lost = time.Now()
		r.c.lost(err)
	case limited && time.Since(r.lost) > r.c.reconnect:
		return fmt.Errorf("the launcher could not be reached for %s: %w", r.c.reconnect, err)
	}
	return r.wait(ctx)
}

// wait waits for a pause, about twice as long each time and in part random, so that
// many clients do not come back all at once.
func (r *retries) wait(ctx context.Context) error {
	timer := time.NewTimer(r.next/2 + rand.N(r.next/2)) //nolint:gosec // need not be secret
	defer timer.Stop()
	r.next = min(2*r.next, lastRetry)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// temporary says whether another attempt may end better: the launcher could not be
// reached, broke off, or is going down. A refusal would be repeated, and so would
// an answer that is too long.
func temporary(err error) bool {
	if IsTooLong(err) {
		return false
	}
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
