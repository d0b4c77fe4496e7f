package main

import (
	"context"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func (c *cli) sleepCommand() *cobra.Command {
	var level int
	var drain, timeout span
	cmd := &cobra.Command{
		Use:   "sleep [flags] ID",
		Short: "Put an instance to sleep, which frees its GPU memory",
		Example: `  launcher sleep qwen
  launcher sleep --level 2 --drain-timeout 1m qwen`,
		Args:              exactly("ID"),
		ValidArgsFunction: c.completeInstances(1),
	}
	cmd.Flags().IntVar(&level, "level", 1, "sleep level: 1 keeps the weights in main memory, 2 drops them")
	cmd.Flags().Var(&drain, "drain-timeout", "how long answers in flight may take before they are cut; 0 for the launcher's default, 1ms to not wait for them")
	cmd.Flags().Var(&timeout, "timeout", "how long the engine may take to fall asleep; 0 for the launcher's default")
	complete(cmd, "level", "1", "2")
	c.formatFlag(cmd)
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, args []string) error {
		if err := launcherapi.CheckSleepLevel(level); err != nil {
			return usagef("--level: %v", err)
		}
		return c.verb(ctx, cl, args[0], func(ctx context.Context) (launcherapi.Instance, error) {
			return cl.Sleep(ctx, args[0], launcherapi.SleepRequest{Level: level, DrainTimeout: drain.value, Timeout: timeout.value})
		})
	})
}
