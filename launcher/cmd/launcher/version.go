package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher/internal/edges/version"
)

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Print the version",
		Example:           `  launcher version`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(c.out, "launcher %s (%s %s/%s)\n", version.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
