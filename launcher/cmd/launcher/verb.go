package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// verb makes a call that returns when the instance is in the wanted state, writes
// lines about its states meanwhile, and shows the instance.
func (c *cli) verb(ctx context.Context, cl *client.Client, id string, call func(context.Context) (launcherapi.Instance, error)) error {
	told := newProgress(c.err)
	stop := tellStates(ctx, cl, id, told)
	instance, err := call(ctx)
	stop()
	if err != nil {
		return err
	}
	told.state(instance)
	return c.show(instance, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s is %s\n", instance.InstanceID, instance.State)
		return err
	})
}

// swapHelps says whether a swap may make the room that is missing: instances that
// are awake hold it.
func swapHelps(err error) bool {
	e, ok := errors.AsType[*launcher.Error](err)
	return ok && e.Fit != nil && slices.ContainsFunc(e.Fit.Holders, func(h launcherapi.GPUHolder) bool {
		return h.State == string(launcher.Awake)
	})
}

// tellStates writes lines about an instance's states until stop is called.
func tellStates(ctx context.Context, cl *client.Client, id string, told *progress) (stop func()) {
	return follow(ctx, cl, nil, func(e launcherapi.WatchEvent) {
		if e.Object.InstanceID == id {
			told.state(e.Object)
		}
	})
}

// follow calls on with the events after a revision until stop is called. Errors of the watch
// are ignored: the caller's own call fails then too, and says why.
func follow(ctx context.Context, cl *client.Client, since *uint64, on func(launcherapi.WatchEvent)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event, err := range cl.Watch(ctx, since) {
			if err != nil {
				return
			}
			on(event)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
