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

// tellStates writes lines about an instance's states until stop is called. Errors
// of its watch are ignored: the caller's own call fails then too, and says why.
func tellStates(ctx context.Context, cl *client.Client, id string, told *progress) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event, err := range cl.Watch(ctx, nil) {
			if err != nil {
				return
			}
			if event.Object.InstanceID == id {
				told.state(event.Object)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
