package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func (c *cli) compiledCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compiled",
		Short: "Show the compiled code of engines, or copy it to another node",
		Long: `Show the code that engines have compiled, which the launcher keeps for the next
start, or copy it to another node.

A launcher imports only code that engines of its own kind have compiled: the same
versions, in the same place, for the same GPUs. Its engines run that code, so import it
only from nodes that you trust.`,
		Example: `  launcher compiled
  launcher compiled export --server A | launcher compiled import --server B`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.formatFlag(cmd, formatWide)
	cmd = c.remote(cmd, func(ctx context.Context, cl *client.Client, _ []string) error {
		list, err := cl.CompileCaches(ctx)
		if err != nil {
			return err
		}
		return c.show(list, func(w io.Writer) error { return c.compiledTable(list.Caches, time.Now()).write(w) })
	})
	cmd.AddCommand(c.exportCommand(), c.importCommand(), c.removeCompiledCommand())
	return cmd
}

func (c *cli) compiledTable(all []launcherapi.CompileCache, now time.Time) *table {
	t := &table{heading: []string{"KEY", "OWN", "ENGINE", "GPUS", "STARTS", "SIZE", "USED"}}
	if c.format == formatWide {
		t.heading = append(t.heading, "CPU", "PATH")
	}
	for _, one := range all {
		own := ""
		if one.Own {
			own = "yes"
		}
		cells := []string{one.Key, own, one.Kind.Engine, strings.Join(one.Kind.GPUs, ", "), strconv.Itoa(one.Starts), launcher.BytesText(uint64(max(0, one.Bytes))), age(now.Sub(one.LastUsed))}
		if c.format == formatWide {
			cells = append(cells, one.Kind.CPU, one.Path)
		}
		t.add(cells...)
	}
	return t
}

func (c *cli) exportCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "export [flags] [KEY]",
		Short:   "Write a compile cache to standard output; without a key, that of the launcher's own engines",
		Args:    cobra.MaximumNArgs(1),
		Example: `  launcher compiled export -f cache.tar`,
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "`FILE` to write in place of standard output")
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, args []string) (err error) {
		list, err := cl.CompileCaches(ctx)
		switch {
		case err != nil:
			return err
		case len(args) == 0 && len(list.Caches) > 0:
			args = []string{list.Caches[0].Key}
		case len(args) == 0:
			return fmt.Errorf("there is no compile cache in %s", list.Folder)
		}
		out := c.out
		if file != "" {
			f, err := os.Create(file)
			if err != nil {
				return err
			}
			defer func() {
				if closed := f.Close(); err == nil {
					err = closed
				}
			}()
			out = f
		}
		return cl.ExportCompileCache(ctx, args[0], out)
	})
}

func (c *cli) importCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "import [flags]",
		Example: `  launcher compiled import -f cache.tar`,
		Short:   "Import a compile cache from standard input",
		Args:    exactly(),
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "`FILE` to read in place of standard input")
	c.formatFlag(cmd)
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, _ []string) error {
		in := io.Reader(os.Stdin)
		if file != "" {
			f, err := os.Open(file)
			if err != nil {
				return err
			}
			defer f.Close()
			in = f
		}
		taken, err := cl.ImportCompileCache(ctx, in)
		if err != nil {
			return err
		}
		return c.show(taken, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, taken.Key)
			return err
		})
	})
}

func (c *cli) removeCompiledCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rm [flags] KEY",
		Example: `  launcher compiled rm 3f9c2a41`,
		Short:   "Remove a compile cache; the launcher's own engines then compile again",
		Args:    exactly("KEY"),
	}
	c.formatFlag(cmd)
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, args []string) error {
		removed, err := cl.RemoveCompileCache(ctx, args[0])
		if err != nil {
			return err
		}
		return c.show(removed, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, removed.Key)
			return err
		})
	})
}
