package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/edges/config"
)

// Lines of help are at most helpWidth wide, or as wide as the terminal, within bounds.
const (
	helpWidth    = 100
	narrowestTTY = 60
	widestTTY    = 120
)

// connectionGroup is the heading of the flags that say how a launcher is reached.
const connectionGroup = "Connection to the launcher"

// usage writes the part of the help that follows the description: usage, examples,
// commands and flags, both by group.
func (c *cli) usage(cmd *cobra.Command) error {
	var text strings.Builder
	text.WriteString("Usage:\n")
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&text, "  %s COMMAND [flags]\n", cmd.CommandPath())
	}
	if cmd.Runnable() && cmd.HasParent() {
		fmt.Fprintf(&text, "  %s\n", cmd.UseLine())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&text, "\nExamples:\n%s\n", cmd.Example)
	}
	writeCommands(&text, cmd)
	writeFlags(&text, cmd.Flags(), widthOf(c.out))
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&text, "\n\"%s COMMAND --help\" says more about a command.\n", cmd.CommandPath())
	}
	_, err := io.WriteString(cmd.OutOrStderr(), text.String())
	return err
}

// writeCommands lists the commands below cmd: each group under its title, then those
// without a group.
func writeCommands(text *strings.Builder, cmd *cobra.Command) {
	for _, group := range append(cmd.Groups(), &cobra.Group{Title: "Other commands:"}) {
		title := group.Title
		for _, sub := range cmd.Commands() {
			if sub.GroupID != group.ID || !sub.IsAvailableCommand() && sub.Name() != "help" {
				continue
			}
			if title != "" {
				fmt.Fprintf(text, "\n%s\n", title)
				title = ""
			}
			fmt.Fprintf(text, "  %-*s  %s\n", sub.NamePadding(), sub.Name(), sub.Short)
		}
	}
}

// writeFlags lists flags: those without a group, then each group under its name, in
// the order in which the flags were defined.
func writeFlags(text *strings.Builder, flags *pflag.FlagSet, width int) {
	const own, connection = "Flags", connectionGroup
	names, groups := []string{own}, map[string]*pflag.FlagSet{}
	flags.VisitAll(func(f *pflag.Flag) {
		name := own
		if group := f.Annotations[config.FlagGroup]; len(group) > 0 {
			name = group[0]
		}
		if groups[name] == nil {
			groups[name] = pflag.NewFlagSet(name, pflag.ContinueOnError)
			groups[name].SortFlags = flags.SortFlags
			if name != own && name != connection {
				names = append(names, name)
			}
		}
		groups[name].AddFlag(f)
	})
	for _, name := range append(names, connection) {
		if group := groups[name]; group != nil && group.HasAvailableFlags() {
			fmt.Fprintf(text, "\n%s:\n%s", name, group.FlagUsagesWrapped(width))
		}
	}
}

// widthOf is how wide a line of help may be on w.
func widthOf(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return min(max(int(size.Col), narrowestTTY), widestTTY)
		}
	}
	return helpWidth
}

// isTerminal says whether a person sits at the other end of a stream.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
