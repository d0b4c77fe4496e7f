package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher/internal/edges/doctor"
)

func (c *cli) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Check whether this machine is ready for serve",
		Long: `Check whether this machine is ready for serve with the same flags. The command
changes nothing. The exit code is 1 when something will not work; a warning does not
make it 1.`,
		Example: `  launcher doctor
  launcher doctor --gpus nvml --vllm /opt/vllm/bin/vllm`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	from := addSettings(cmd.Flags())
	c.formatFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := from.load()
		if err != nil {
			return err
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		engine, err := engineOf(cfg)
		report := doctor.Run(ctx, doctor.Options{Config: cfg, Program: doctor.Program{Argv: engine.argv, StandIn: engine.standIn, Err: err}})
		if err := c.show(report, func(w io.Writer) error { return writeReport(w, report) }); err != nil {
			return err
		}
		if report.Status == doctor.Fail {
			return &exitError{code: exitFailed} // the report has said it
		}
		return nil
	}
	return cmd
}

// writeReport writes a line for each check, and its remedy on a line below. Paths and what
// programs say may have characters in them that a terminal would obey.
func writeReport(w io.Writer, report doctor.Report) error {
	widest := 0
	for _, check := range report.Checks {
		widest = max(widest, len(check.Name))
	}
	for _, check := range report.Checks {
		if _, err := fmt.Fprintf(w, "%-4s  %-*s  %s\n", check.Status, widest, check.Name, visible(check.Finding)); err != nil {
			return err
		}
		if check.Remedy == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%-4s  %-*s  → %s\n", "", widest, "", visible(check.Remedy)); err != nil {
			return err
		}
	}
	return nil
}
