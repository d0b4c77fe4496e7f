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

// Limits of the pause between two attempts to resume a stream.
const (
	firstRetry = 25 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// retries paces the attempts to resume one stream, with a growing back-off.
type retries struct {
	c    *Client
	next time.Duration
	lost time.Time // when the stream broke; zero while it is up
}

func (c *Client) retries() *retries { return &retries{c: c, next: firstRetry} }

// connected records that the launcher has answered.
func (r *retries) connected() { r.lost = time.Time{} }

// reset resets the back-off, after an attempt that brought events.
func (r *retries) reset() { r.next = firstRetry }

// again waits after an attempt that ended with err. It returns an error if no other attempt
// should follow.
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

// wait waits for a pause that doubles each time. A part of it is random, so that clients do not
// all reconnect at once.
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

// temporary reports whether another attempt may succeed: the launcher could not be reached, the
// connection broke, or the launcher is closing. A refusal, or an answer that is too long, would
// come again.
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
