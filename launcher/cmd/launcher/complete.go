package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// completionTime is how long a shell waits for the launcher's list of ids.
const completionTime = 500 * time.Millisecond

// completeInstances offers the ids that the launcher has, for the first so many
// arguments; −1 means all. When the launcher does not answer it offers none.
func (c *cli) completeInstances(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
		if most >= 0 && len(given) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		cl, err := c.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer cl.Close()
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		list, err := cl.List(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var ids []string
		for _, i := range list.Instances {
			if !slices.Contains(given, i.InstanceID) {
				ids = append(ids, cobra.CompletionWithDesc(i.InstanceID, i.State+" "+i.Model))
			}
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}
