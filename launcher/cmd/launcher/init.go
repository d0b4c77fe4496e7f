package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/launcher/internal/edges/daemon"
	"hotseat.dev/hotseat/launcher/internal/machine/initd"
)

func (c *cli) initCommand() *cobra.Command {
	var misconfigured int
	cmd := &cobra.Command{
		Use:   "init [flags] -- serve [flags]",
		Short: "Run serve, and restart it at once when it dies",
		Long: `Run serve, and restart it at once when it dies. This is the first process of a
container, or the parent of serve elsewhere. While serve is down it adopts the
engines and records how they end. It restarts serve whatever serve died of, and gives
up only when serve says that its configuration is wrong. If it is told to end while
serve is down, and on_exit is stop, it runs serve a last time to stop the engines.`,
		Example: `  launcher init -- serve --state-dir /var/lib/hotseat`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] != "serve" {
				return usagef("init runs serve: launcher init -- serve [flags]")
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&misconfigured, "misconfigured-exit-code", exitUsage,
		"exit `CODE` for a wrong configuration; choose another than 2 to tell it from a crash, which ends with 2 too")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := c.runServe(cmd, args, misconfigured)
		if exit, ok := errors.AsType[*exitError](err); ok && exit.code == exitUsage && !exit.passing {
			exit.code = misconfigured
		}
		return err
	}
	return cmd
}

// runServe runs init with the command line of serve.
func (c *cli) runServe(cmd *cobra.Command, args []string, misconfigured int) error {
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	flags.Usage = func() {}
	from := addSettings(flags)
	switch err := flags.Parse(args[1:]); {
	case errors.Is(err, pflag.ErrHelp):
		serve, _, err := cmd.Root().Find(args[:1])
		return errors.Join(err, serve.Help())
	case err != nil:
		return usagef("%w; see: launcher serve --help", err)
	}
	cfg, err := from.load()
	if err != nil {
		return err
	}
	if err := statedir.Prepare(cfg.StateDir); err != nil { // init writes into it before serve does
		return &exitError{code: exitUsage, cause: remedy(cmd.Context(), err, cfg), passing: true}
	}
	code, err := initd.Run(cmd.Context(), initd.Options{
		Args: args, ExitDir: daemon.ExitDir(cfg.StateDir), Misconfigured: misconfigured, Logger: c.openLog(cfg).With("process", "init"),
		StopsEngines: func() bool {
			now, err := from.load()
			return err != nil || now.StopsEngines() // serve says what is wrong with the configuration
		},
		LastTime: daemon.LastTime(cfg),
	})
	if err != nil {
		return &exitError{code: exitUsage, cause: remedy(cmd.Context(), err, cfg), passing: true}
	}
	if code != exitOK {
		return &exitError{code: code, passing: true} // serve has said why; a crash has code 2 as well
	}
	return nil
}
