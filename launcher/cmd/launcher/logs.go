package main

import (
	"bytes"
	"context"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func (c *cli) logsCommand() *cobra.Command {
	var follow bool
	var tail int
	cmd := &cobra.Command{
		Use:   "logs [flags] ID",
		Short: "Show the log of an instance",
		Example: `  launcher logs --tail 20 qwen
  launcher logs -f qwen`,
		Args:              exactly("ID"),
		ValidArgsFunction: c.completeInstances(1),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow the log until the instance has ended")
	cmd.Flags().IntVarP(&tail, "tail", "n", -1, "how many `LINES` to show from the end; -1 for all")
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, args []string) error {
		if tail < -1 {
			return usagef("--tail is a number of lines, or -1 for all, not %d", tail)
		}
		c.asksOnly = true
		from, err := startOfTail(ctx, cl, args[0], tail)
		if err != nil {
			return err
		}
		if follow {
			c.follows = true
			return cl.FollowLog(ctx, args[0], from, forPerson(c.out))
		}
		return cl.CopyLog(ctx, args[0], from, forPerson(c.out))
	})
}

// tailChunk is how many bytes of a log are read at once, from its end.
const tailChunk = 256 << 10

// startOfTail gives the offset in bytes of the last lines of a log: 0 for a
// negative number of lines, which means all.
func startOfTail(ctx context.Context, cl *client.Client, id string, lines int) (int64, error) {
	if lines < 0 {
		return 0, nil
	}
	first, err := cl.Log(ctx, id, 0, 0) // whose length is known also when this byte was dropped
	if err != nil && launcher.CodeOf(err) != launcherapi.CodeRange {
		return 0, err
	}
	if lines == 0 {
		return first.Total, nil
	}
	missing := lines
	for end := first.Total; end > 0; {
		begin := max(0, end-tailChunk)
		part, err := cl.Log(ctx, id, begin, end-1)
		if launcher.CodeOf(err) == launcherapi.CodeRange {
			return end, nil // all before was dropped
		}
		if err != nil {
			return 0, err
		}
		if end == first.Total && !bytes.HasSuffix(part.Bytes, []byte("\n")) {
			missing-- // the last line has no end yet
		}
		for n := len(part.Bytes) - 1; n >= 0; n-- {
			if part.Bytes[n] != '\n' {
				continue
			}
			if missing <= 0 {
				return part.First + int64(n) + 1, nil
			}
			missing--
		}
		if part.First > begin {
			return part.First, nil
		}
		end = begin
	}
	return 0, nil
}
