package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher/internal/edges/catalogue/importswap"
)

// importFormCommand has a command for each program whose configuration can be imported.
func (c *cli) importFormCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "import",
		Short:   "Turn a configuration of another program into one of the launcher",
		Example: `  launcher import llama-swap config.yaml > /etc/hotseat/conf.d/imported.yaml`,
		Args:    exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.importSwapCommand())
	return cmd
}

func (c *cli) importSwapCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "llama-swap FILE",
		Short: "Turn a configuration of llama-swap into a list of models",
		Long: `Turn a configuration of llama-swap into a list of models, and write it to standard
output. Standard error names everything that has no counterpart. "-" reads the
configuration from standard input.

vllm behind vllm-wrapper becomes a model that sleeps. A program other than llama-server
and vllm becomes a command if its cmd has ${PORT}; else its model is left out.
Environment variables that the file refers to must be set; those in an engine's
environment stay references.`,
		Example: `  launcher import llama-swap config.yaml > /etc/hotseat/conf.d/imported.yaml`,
		Args:    exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			data, err := c.readArgument(args[0])
			if err != nil {
				return fmt.Errorf("cannot read the configuration: %w", err)
			}
			made, notes, err := importswap.Import(data, os.LookupEnv)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			for _, n := range notes {
				fmt.Fprintln(c.err, n)
			}
			_, err = c.out.Write(made.YAML())
			return err
		},
	}
}

// readArgument reads a file that the command line names; "-" is standard input.
func (c *cli) readArgument(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(c.in)
	}
	return os.ReadFile(name)
}
