package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// span is a flag for a duration: "1m30s", or a number of seconds.
type span struct{ value *launcherapi.Duration }

func (s *span) String() string {
	if s.value == nil {
		return ""
	}
	return time.Duration(*s.value).String()
}

func (s *span) Type() string { return "duration" }

func (s *span) Set(text string) error {
	d, err := launcherapi.ParseDuration(text)
	if err != nil {
		return err
	}
	s.value = &d
	return nil
}

// limit bounds a context by the flag's duration, if that was given and is not 0.
func (s *span) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.value == nil || *s.value == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(*s.value))
}

// environment reads --env flags: NAME=VALUE, or NAME for the value of that variable
// in the command's own environment.
func environment(flags []string) (map[string]launcherapi.EnvValue, error) {
	var env map[string]launcherapi.EnvValue
	for _, flag := range flags {
		name, value, given := strings.Cut(flag, "=")
		if !given {
			value, given = os.LookupEnv(name)
		}
		switch {
		case name == "":
			return nil, usagef("--env %q has no name: write NAME=VALUE", flag)
		case !given:
			return nil, usagef("--env %s: there is no such variable here; write NAME=VALUE", name)
		}
		if env == nil {
			env = map[string]launcherapi.EnvValue{}
		}
		env[name] = launcherapi.EnvValue{Value: value}
	}
	return env, nil
}

// complete offers fixed values for a flag.
func complete(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag does not exist, or has a completion already
	}
}
