package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// Swap makes one instance the awake one on a set of GPUs, and returns when the swap is over. It
// calls progress, which may be nil, when a phase begins and when it ends. If the swap failed,
// the error is an *[UndoneError] with the result. After any other [launcher.Error], the swap has
// changed nothing. If ctx ends first, the swap continues.
func (c *Client) Swap(ctx context.Context, req launcherapi.SwapRequest, progress func(launcherapi.SwapProgress)) (launcherapi.SwapResult, error) {
	return c.SwapOnce(ctx, "", req, progress)
}

// SwapOnce is Swap with an idempotency key. If the caller repeats a call, for example because
// the connection broke, the second call joins the first swap or gets its answer.
func (c *Client) SwapOnce(ctx context.Context, key string, req launcherapi.SwapRequest, progress func(launcherapi.SwapProgress)) (launcherapi.SwapResult, error) {
	what := call{method: http.MethodPost, path: "/v2/vllm/swap", body: req, header: map[string]string{"Accept": "application/json"}}
	if key != "" {
		what.header["Idempotency-Key"] = key
	}
	if progress == nil {
		return do[launcherapi.SwapResult](ctx, c, what)
	}
	what.header["Accept"] = ndjson
	return c.follow(ctx, what, progress)
}

// follow reads the steps of a swap until it is over.
func (c *Client) follow(ctx context.Context, what call, progress func(launcherapi.SwapProgress)) (launcherapi.SwapResult, error) {
	resp, err := c.send(ctx, what)
	if err != nil {
		return launcherapi.SwapResult{}, err
	}
	defer resp.Body.Close()
	phases := linesOf(resp.Body)
	for phases.Scan() {
		var p launcherapi.SwapProgress
		if err := json.Unmarshal(phases.Bytes(), &p); err != nil {
			return launcherapi.SwapResult{}, fmt.Errorf("cannot follow the swap, which goes on: %w", err)
		}
		switch {
		case p.Result != nil:
			return *p.Result, drained(resp.Body)
		case p.Problem != nil:
			return launcherapi.SwapResult{}, errors.Join(errorOf(*p.Problem), drained(resp.Body))
		}
		if progress != nil {
			progress(p)
		}
	}
	return launcherapi.SwapResult{}, fmt.Errorf("cannot follow the swap, which goes on: %w", phases.end())
}

// Swaps lists the swaps that the launcher remembers, oldest first.
func (c *Client) Swaps(ctx context.Context) (launcherapi.SwapList, error) {
	return list(ctx, c, call{method: http.MethodGet, path: swapsPath}, "swaps", func(l *launcherapi.SwapList) *[]launcherapi.Swap { return &l.Swaps })
}

// FollowSwap follows a swap that any client has asked for, as Swap follows its own. It calls
// progress, which may be nil, with the steps before the call, too.
func (c *Client) FollowSwap(ctx context.Context, id string, progress func(launcherapi.SwapProgress)) (launcherapi.SwapResult, error) {
	return c.follow(ctx, call{method: http.MethodGet, path: swapPath(id) + "?follow=true", header: map[string]string{"Accept": ndjson}}, progress)
}

// CancelSwap cancels a swap as CallOff does, by its id.
func (c *Client) CancelSwap(ctx context.Context, id string) error {
	_, err := do[launcherapi.CalledOff](ctx, c, call{method: http.MethodDelete, path: swapPath(id)})
	return err
}

// GoSwap lets a swap that was asked for with Prepare begin. It has no effect on a swap that has
// begun. The error for a swap that has failed is the swap's.
func (c *Client) GoSwap(ctx context.Context, id string) (launcherapi.Swap, error) {
	return c.tellSwap(ctx, id, "go")
}

// CommitSwap lets a swap that was asked for with Until, and is in the phase commit, open the gate
// of the instance that came in. The error has the code conflict if the swap is not in that phase or is
// being undone; for a swap that has failed it is the swap's.
func (c *Client) CommitSwap(ctx context.Context, id string) (launcherapi.Swap, error) {
	return c.tellSwap(ctx, id, "commit")
}

// UndoSwap undoes a swap that was asked for with Until, or cancels it if it waits. It does not
// wait for the end of the undo. The error has the code conflict if the swap is committed.
func (c *Client) UndoSwap(ctx context.Context, id string) (launcherapi.Swap, error) {
	return c.tellSwap(ctx, id, "undo")
}

func (c *Client) tellSwap(ctx context.Context, id, what string) (launcherapi.Swap, error) {
	return do[launcherapi.Swap](ctx, c, call{method: http.MethodPost, path: swapPath(id) + "/" + what})
}

const swapsPath = "/v2/swaps"

func swapPath(id string) string { return swapsPath + "/" + url.PathEscape(id) }

// CallOff cancels the swap with an idempotency key, if it still waits for its turn: its outcome
// is refused. If the swap has begun or is over, the error has the code conflict.
func (c *Client) CallOff(ctx context.Context, key string) error {
	_, err := do[launcherapi.CalledOff](ctx, c, call{method: http.MethodDelete, path: "/v2/vllm/swap", header: map[string]string{"Idempotency-Key": key}})
	return err
}

// drained reads an answer to its end, so that the connection can be used again.
func drained(r io.Reader) error {
	_, err := io.Copy(io.Discard, io.LimitReader(r, maxAnswer))
	return err
}
