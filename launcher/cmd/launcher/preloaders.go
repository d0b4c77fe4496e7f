package main

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func (c *cli) preloadersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "preloaders",
		Short:             "Show the processes with a loaded engine, from which instances are forked",
		Example:           `  launcher preloaders`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.formatFlag(cmd)
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, _ []string) error {
		list, err := cl.Preloaders(ctx)
		if err != nil {
			return err
		}
		return c.show(list, func(w io.Writer) error {
			if list.Reason != "" {
				_, err := io.WriteString(w, "none: "+oneLine(list.Reason)+"\n")
				return err
			}
			return preloaderTable(list.Preloaders, time.Now()).write(w)
		})
	})
}

func preloaderTable(all []launcherapi.Preloader, now time.Time) *table {
	t := &table{heading: []string{"NAME", "STATE", "ENGINE", "PID", "FORKS", "MEMORY", "AGE", "VARIABLES", "REASON"}}
	for _, l := range all {
		pid := "-"
		if l.PID != 0 {
			pid = strconv.Itoa(l.PID)
		}
		t.add(l.Name, l.State, orDash(l.EngineVersion), pid, strconv.Itoa(l.Forks), launcher.BytesText(l.MemoryBytes), age(now.Sub(l.Since)),
			strings.Join(l.Variables, ","), oneLine(l.Reason))
	}
	return t
}
