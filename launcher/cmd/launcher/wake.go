package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func (c *cli) wakeCommand() *cobra.Command {
	var timeout span
	cmd := &cobra.Command{
		Use:               "wake [flags] ID",
		Short:             "Wake a sleeping instance, if its GPUs have room for it",
		Example:           `  launcher wake qwen`,
		Args:              exactly("ID"),
		ValidArgsFunction: c.completeInstances(1),
	}
	cmd.Flags().Var(&timeout, "timeout", "how long the engine may take to wake; 0 for the launcher's default")
	c.formatFlag(cmd)
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, args []string) error {
		return c.verb(ctx, cl, args[0], func(ctx context.Context) (launcherapi.Instance, error) {
			instance, err := cl.Wake(ctx, args[0], launcherapi.WakeRequest{Timeout: timeout.value})
			if swapHelps(err) {
				err = fmt.Errorf("%w; use launcher swap %s to put what is awake there to sleep", err, args[0])
			}
			return instance, err
		})
	})
}
