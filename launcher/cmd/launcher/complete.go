package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher/client"
)

// completionTime is how long a shell waits for the launcher's answer.
const completionTime = 500 * time.Millisecond

// completeInstances offers the ids that the launcher has, for the first so many
// arguments; −1 means all.
func (c *cli) completeInstances(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
		if most >= 0 && len(given) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.completeFrom(cmd, func(ctx context.Context, cl *client.Client) ([]string, error) {
			list, err := cl.List(ctx)
			var ids []string
			for _, i := range list.Instances {
				if !slices.Contains(given, i.InstanceID) {
					ids = append(ids, cobra.CompletionWithDesc(i.InstanceID, i.State+" "+i.Model))
				}
			}
			return ids, err
		})
	}
}

// completeFrom offers what a call of the launcher gives. When the launcher does not
// answer it offers nothing.
func (c *cli) completeFrom(cmd *cobra.Command, from func(context.Context, *client.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	cl, err := c.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	words, err := from(ctx, cl)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
