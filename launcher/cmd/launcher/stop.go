package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func (c *cli) stopCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "stop ID... | stop --all",
		Short: "Stop instances with all their processes, and forget them",
		Example: `  launcher stop qwen llama
  launcher stop --all`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 0:
				return usagef("--all and ids do not go together; give one of them")
			case !all && len(args) == 0:
				return usagef("ID is missing; name the instances to stop, or give --all")
			}
			return nil
		},
		ValidArgsFunction: c.completeInstances(-1),
	}
	cmd.Flags().BoolVar(&all, "all", false, "stop every instance")
	c.formatFlag(cmd)
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, args []string) error {
		told := newProgress(c.err)
		if all {
			list, err := c.stopAll(ctx, cl, told)
			if err != nil {
				return err
			}
			return c.show(list, func(w io.Writer) error { return nameStopped(w, list.StoppedInstances...) })
		}
		return c.stopEach(ctx, cl, args, told)
	})
}

// stopAll stops every instance, and writes a line when one is gone.
func (c *cli) stopAll(ctx context.Context, cl *client.Client, told *progress) (launcherapi.StoppedList, error) {
	before, err := cl.List(ctx)
	if err != nil {
		return launcherapi.StoppedList{}, err
	}
	stop := follow(ctx, cl, &before.Revision, func(e launcherapi.WatchEvent) {
		if e.Type == launcherapi.EventDeleted {
			told.gone(e.Object)
		}
	})
	list, err := cl.DeleteAll(ctx)
	stop()
	if err == nil && len(list.StoppedInstances) == 0 {
		_, _ = fmt.Fprintln(c.err, "launcher: there is no instance to stop")
	}
	for _, i := range list.StoppedInstances {
		told.gone(i)
	}
	return list, err
}

// stopEach stops the instances one after the other. After an instance that cannot
// be stopped it goes on with the others.
func (c *cli) stopEach(ctx context.Context, cl *client.Client, ids []string, told *progress) error {
	var failed []error
	stopped := []launcherapi.Instance{}
	for _, id := range ids {
		instance, err := cl.Delete(ctx, id)
		if err != nil {
			failed = append(failed, nameInstances(ctx, cl, err))
			continue
		}
		told.gone(instance)
		stopped = append(stopped, instance)
		if c.format != formatJSON { // a line for each at once; JSON is one document at the end
			if err := nameStopped(c.out, instance); err != nil {
				return err
			}
		}
	}
	if c.format == formatJSON {
		failed = append(failed, c.showStopped(ids, stopped))
	}
	return errors.Join(failed...)
}

// showStopped writes one document: for a single id the instance, as the API gives
// it, and else a list of the stopped instances.
func (c *cli) showStopped(ids []string, stopped []launcherapi.Instance) error {
	switch {
	case len(ids) > 1:
		return c.show(stopped, nil)
	case len(stopped) == 1:
		return c.show(stopped[0], nil)
	}
	return nil // standard error says why it was not stopped
}

func nameStopped(w io.Writer, instances ...launcherapi.Instance) error {
	for _, i := range instances {
		if _, err := fmt.Fprintln(w, i.InstanceID); err != nil {
			return err
		}
	}
	return nil
}
