package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// The states that a wait may be for.
const (
	forAwake   = "awake"
	forAsleep  = "asleep"
	forStopped = "stopped"
)

func (c *cli) waitCommand() *cobra.Command {
	var until string
	var timeout span
	cmd := &cobra.Command{
		Use:   "wait [flags] ID",
		Short: "Wait until an instance is awake, asleep or stopped",
		Long: `Wait until an instance is awake, asleep or stopped. An instance that ends while the
command waits for another state makes the exit code 1, and so does a timeout.
An instance that does not exist counts as stopped.`,
		Example: `  launcher wait qwen
  launcher wait qwen --for asleep --timeout 1m`,
		Args:              exactly("ID"),
		ValidArgsFunction: c.completeInstances(1),
	}
	cmd.Flags().StringVar(&until, "for", forAwake, "what to wait for: `awake|asleep|stopped`")
	cmd.Flags().Var(&timeout, "timeout", "how long to wait at most; 0 waits without a limit")
	complete(cmd, "for", forAwake, forAsleep, forStopped)
	c.formatFlag(cmd)
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, args []string) error {
		if until == string(launcher.Sleeping) { // as ps calls it
			until = forAsleep
		}
		if !slices.Contains([]string{forAwake, forAsleep, forStopped}, until) {
			return usagef("--for is %s, %s or %s, not %q", forAwake, forAsleep, forStopped, until)
		}
		c.asksOnly, c.follows = true, true
		limited, cancel := timeout.limit(ctx)
		defer cancel()
		told := newProgress(c.err)
		instance, err := cl.Get(limited, args[0])
		if err == nil {
			if until == forAwake && instance.State == string(launcher.Sleeping) {
				told.say("%s sleeps; launcher swap %s wakes it", instance.InstanceID, instance.InstanceID)
			}
			instance, err = awaitState(limited, cl, instance, told, waitOver(until))
		}
		_, deleted := errors.AsType[*deletedError](err)
		switch {
		case until == forStopped && (deleted || client.IsNotFound(err)):
			return c.say("%s is gone\n", args[0])
		case errors.Is(context.Cause(limited), context.DeadlineExceeded):
			return fmt.Errorf("%s is not %s after %s; it is %s", args[0], until, time.Duration(*timeout.value), strings.ReplaceAll(instance.State, "_", " "))
		case err != nil:
			return err
		}
		return c.show(instance, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "%s is %s\n", instance.InstanceID, instance.State)
			return err
		})
	})
}

// waitOver says whether a wait for a state is over, by an error when it cannot come
// any more.
func waitOver(until string) func(launcherapi.Instance) (bool, error) {
	wanted := map[string]launcher.State{forAwake: launcher.Awake, forAsleep: launcher.Sleeping, forStopped: launcher.Stopped}[until]
	return func(i launcherapi.Instance) (bool, error) {
		state := launcher.State(i.State)
		switch {
		case state == wanted, until == forStopped && state.Ended():
			return true, nil
		case state.Ended():
			return true, ended(i)
		}
		return false, nil
	}
}
