package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hotseat.dev/hotseat/launcher/internal/edges/config"
	"hotseat.dev/hotseat/launcher/internal/edges/version"
	"hotseat.dev/hotseat/launcher/internal/machine/initd"
)

// cli is one call of the program: its outputs, and the flags that more than one
// command has.
type cli struct {
	in       io.Reader // nil: there is none
	out, err io.Writer
	init     *initd.Init // the init that runs this process; nil: none does
	closeLog func()      // of serve and init: writes what is left of the log; nil: there is none

	server                          string // address of the launcher
	tokenFile                       string
	serverCA, clientCert, clientKey string
	format                          string // table, wide or json

	follows   bool          // the command is all about a stream, and says when that breaks off
	asksOnly  bool          // the command changes nothing, so that nothing goes on when it is interrupted
	reconnect time.Duration // how long it then tries to connect again; 0: defaultReconnect
}

// Exit codes of every command; beside them 130 and 143 for an interrupted one.
const (
	exitOK     = 0
	exitFailed = 1 // the command was not done; standard error says why
	exitUsage  = 2 // command line, configuration, state folder or address are wrong; nothing was touched
)

// exitError is an error with the exit code that it means.
type exitError struct {
	code    int
	cause   error // nil: nothing is left to say
	passing bool  // another try may succeed without a change of the configuration
}

func (e *exitError) Error() string {
	if e.cause == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.cause.Error()
}

func (e *exitError) Unwrap() error { return e.cause }

// usagef says that the command line is wrong.
func usagef(format string, args ...any) error {
	return &exitError{code: exitUsage, cause: fmt.Errorf(format, args...)}
}

// run runs the command that args name, and gives its exit code.
func (c *cli) run(ctx context.Context, args []string) (exitCode int) {
	root := c.rootCommand()
	root.SetArgs(append([]string{}, args...)) // nil would mean the arguments of the process
	root.SetOut(c.out)
	root.SetErr(c.err)
	defer func() {
		if c.closeLog != nil {
			c.closeLog()
		}
	}()
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	exit, ok := errors.AsType[*exitError](err)
	if !ok {
		exit = &exitError{code: exitFailed, cause: err}
	}
	if exit.cause != nil {
		c.explain(exit.cause)
	}
	if exit.code == exitUsage && !exit.passing {
		c.init.Misconfigured()
	}
	return exit.code
}

func (c *cli) rootCommand() *cobra.Command {
	cobra.EnableCommandSorting = false // help lists first what people use first
	root := &cobra.Command{
		Use:   "launcher",
		Short: "Models take turns on a GPU",
		Long: strings.TrimSpace(`
Models take turns on a GPU. "launcher serve" runs engines (vllm serve) on this
machine and swaps them. Most other commands are clients of its API, and take the
connection flags. pull, models and rm need no launcher: they work on a folder of models.

Exit codes: 0 done; 1 not done, with the reason on standard error; 2 the command
line, the configuration, the state folder or the address is wrong.`),
		Example: `  launcher serve                                     # in one terminal
  launcher run --gpu 0 --id qwen Qwen/Qwen3-0.6B     # in another
  launcher chat qwen -- What is the capital of France?
  launcher swap --gpu 0 --id llama -- meta-llama/Llama-3.2-1B
  launcher swap qwen
  launcher ps`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version.Version,
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2,
	}
	root.SetUsageFunc(c.usage)
	c.connectionFlags(root) // they may stand before the command
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w%s; see: %s --help", err, meant(cmd, err), cmd.CommandPath())
	})
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Run models:", []*cobra.Command{c.runCommand(), c.chatCommand(), c.swapCommand(), c.sleepCommand(), c.wakeCommand(), c.stopCommand(), c.waitCommand()}},
		{"Show what runs:", []*cobra.Command{c.psCommand(), c.getCommand(), c.logsCommand(), c.gpusCommand(), c.swapsCommand(), c.preloadersCommand()}},
		{"Models on disk:", []*cobra.Command{c.pullCommand(), c.modelsCommand(), c.rmCommand(), c.compiledCommand()}},
		{"The daemon:", []*cobra.Command{c.serveCommand(), c.doctorCommand(), c.initCommand(), c.importFormCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, cmd := range group.commands {
			cmd.GroupID = group.title
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(c.versionCommand())
	return root
}

// meant adds to the error for an unknown flag what replaces it, if an earlier release had
// it, or which one may have been meant: the command's flag in the plural or the singular
// (--gpu, --gpus), or one of the engine's.
func meant(cmd *cobra.Command, err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return ""
	}
	name, near := unknown.GetSpecifiedName(), ""
	if instead := config.Removed(name); instead != "" {
		return instead
	}
	if name == "pin" && cmd.Name() == "pull" {
		return "; an earlier release had it: pull the model, and keep it by: launcher models keep MODEL"
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if strings.TrimSuffix(f.Name, "s") == strings.TrimSuffix(name, "s") {
			near = f.Name
		}
	})
	switch {
	case near != "":
		return ": did you mean --" + near + "?"
	case strings.Contains(cmd.Use, "ARGS"):
		return ": options of vllm stand after the model"
	}
	return ""
}

func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	near := cmd.SuggestionsFor(args[0])
	if len(near) == 0 {
		return usagef("no command %q; see: launcher --help", args[0])
	}
	slices.Sort(near)
	return usagef("no command %q; did you mean %s?", args[0], strings.Join(near, " or "))
}

// exactly refuses any other number of arguments than that of names.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("%s is missing; usage: %s", names[len(args)], cmd.UseLine())
		case len(args) > len(names):
			return usagef("%q is one argument too many; usage: %s", args[len(names)], cmd.UseLine())
		}
		return nil
	}
}
