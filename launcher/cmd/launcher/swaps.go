package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func (c *cli) swapsCommand() *cobra.Command {
	cancel := false
	cmd := &cobra.Command{
		Use:   "swaps [SWAP]",
		Short: "List the swaps that wait, run or are over; follow or cancel one",
		Long: `List the swaps that wait for their turn, run or are over, whoever asked for them.
With SWAP, the id of one, follow its phases until it is over. With --cancel, cancel it,
which is possible while it waits.`,
		Example: `  launcher swaps
  launcher swaps 0b7e2b3e-5d0c-4a8e-9a51-2f0f6c2f8d11
  launcher swaps --cancel 0b7e2b3e-5d0c-4a8e-9a51-2f0f6c2f8d11`,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && args[0] == "" {
			return usagef("SWAP is empty; launcher swaps lists the swaps")
		}
		if len(args) == 1 {
			return nil
		}
		if cancel {
			return usagef("--cancel needs the id of one swap; launcher swaps lists them")
		}
		return exactly()(cmd, args)
	}
	cmd.Flags().BoolVar(&cancel, "cancel", false, "cancel the swap, which must be waiting")
	c.formatFlag(cmd)
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, args []string) error {
		switch {
		case len(args) == 0:
			return c.listSwaps(ctx, cl)
		case cancel:
			if err := cl.CancelSwap(ctx, args[0]); err != nil {
				return err
			}
			return c.show(launcherapi.CalledOff{SwapID: args[0]}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "swap %s is cancelled\n", args[0])
				return err
			})
		}
		told := newProgress(c.err)
		result, err := cl.FollowSwap(ctx, args[0], told.swap)
		told.close()
		if err != nil {
			return err
		}
		return c.show(result, func(w io.Writer) error { return describeSwap(w, result) })
	})
}

func (c *cli) listSwaps(ctx context.Context, cl *client.Client) error {
	list, err := cl.Swaps(ctx)
	if err != nil {
		return err
	}
	gpus, err := cl.GPUs(ctx)
	if err != nil {
		return err
	}
	return c.show(list, swapTable(list.Swaps, gpus.GPUs, time.Now()).write)
}

// swapTable is the table of swaps; ages are those at now.
func swapTable(swaps []launcherapi.Swap, gpus []launcherapi.GPU, now time.Time) *table {
	t := &table{heading: []string{"SWAP", "IN", "GPUS", "STATE", "PHASE", "AGE", "OUTCOME"}}
	for _, s := range swaps {
		outcome := ""
		switch {
		case s.Result != nil:
			outcome = s.Result.Outcome
		case s.Problem != nil:
			outcome = s.Problem.Outcome
		}
		t.add(s.SwapID, orDash(s.InstanceID), indices(s.GPUUUIDs, gpus), s.State, orDash(s.Phase), age(now.Sub(s.BeganAt)), orDash(outcome))
	}
	return t
}
