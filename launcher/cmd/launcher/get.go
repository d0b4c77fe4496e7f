package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kballard/go-shellquote"
	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func (c *cli) getCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get [flags] ID",
		Short: "Show one instance",
		Example: `  launcher get qwen
  launcher get qwen -o json`,
		Args:              exactly("ID"),
		ValidArgsFunction: c.completeInstances(1),
	}
	c.formatFlag(cmd)
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, args []string) error {
		instance, err := cl.Get(ctx, args[0])
		if err != nil {
			return err
		}
		gpus, err := cl.GPUs(ctx)
		if err != nil {
			return err
		}
		return c.show(instance, func(w io.Writer) error { return describe(w, instance, gpus.GPUs, time.Now()) })
	})
}

// describe writes what there is to say about an instance, one thing on a line.
func describe(w io.Writer, i launcherapi.Instance, gpus []launcherapi.GPU, now time.Time) error {
	var text bytes.Buffer
	aligned := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, fact := range facts(i, gpus, now) {
		if fact.value != "" {
			_, _ = fmt.Fprintf(aligned, "%s:\t%s\n", fact.name, visible(fact.value)) // a buffer takes everything
		}
	}
	_ = aligned.Flush()
	if len(i.LastLogLines) > 0 {
		text.WriteString("Last lines of its log:\n")
	}
	for _, line := range i.LastLogLines {
		fmt.Fprintf(&text, "  | %s\n", visible(line))
	}
	_, err := w.Write(text.Bytes())
	return err
}

// fact is one thing about an instance; there is nothing to say where value is empty.
type fact struct{ name, value string }

func facts(i launcherapi.Instance, gpus []launcherapi.GPU, now time.Time) []fact {
	return []fact{
		{"ID", i.InstanceID},
		{"Model", i.Model},
		{"Served as", strings.Join(i.ServedModelNames, ", ")},
		{"State", stateText(i, now)},
		{"Reason", oneLine(i.Reason)},
		{"Cause", i.Cause},
		{"Exit code", exitCodeText(i.ExitCode)},
		{"GPUs", indices(i.GPUUUIDs, gpus)},
		{"GPU memory", gpuBytes(i.GPUBytes, gpus)},
		{"Host memory", bytesOrNothing(i.HostBytes)},
		{"Address", addressOf(i)},
		{"Process", processText(i)},
		{"Requests", fmt.Sprintf("%d in flight, %d held", i.InFlight, i.Held)},
		{"Created", ago(&i.CreatedAt, now)},
		{"Last used", ago(i.LastUsedAt, now)},
		{"Command line", commandLine(i)},
		{"Environment", variables(i.EnvVars)},
		{"Annotations", annotations(i.Annotations)},
		{"Model read from", modelFrom(i)},
		{"Log file", i.LogName},
		{"Swap", i.SwapID},
		{"Times", times(i.Timings)},
	}
}

func stateText(i launcherapi.Instance, now time.Time) string {
	level := ""
	if i.SleepLevel > 0 && launcher.State(i.State) == launcher.Sleeping {
		level = fmt.Sprintf(" at level %d", i.SleepLevel)
	}
	return fmt.Sprintf("%s%s for %s", strings.ReplaceAll(i.State, "_", " "), level, age(now.Sub(i.StateSince)))
}

func exitCodeText(code *int) string {
	if code == nil {
		return ""
	}
	return strconv.Itoa(*code)
}

func gpuBytes(held map[string]uint64, gpus []launcherapi.GPU) string {
	var words []string
	for _, uuid := range slices.Sorted(maps.Keys(held)) {
		words = append(words, fmt.Sprintf("%s on %s", launcher.BytesText(held[uuid]), indices([]string{uuid}, gpus)))
	}
	return strings.Join(words, ", ")
}

func bytesOrNothing(n uint64) string {
	if n == 0 {
		return ""
	}
	return launcher.BytesText(n)
}

// addressOf is where clients reach an instance.
func addressOf(i launcherapi.Instance) string {
	if i.Port == 0 || i.Host == "" {
		return ""
	}
	return "http://" + net.JoinHostPort(i.Host, strconv.Itoa(i.Port))
}

func processText(i launcherapi.Instance) string {
	switch {
	case i.PID == 0:
		return ""
	case i.StartedBy == "":
		return strconv.Itoa(i.PID)
	}
	return fmt.Sprintf("%d, started by %s", i.PID, i.StartedBy)
}

func ago(then *time.Time, now time.Time) string {
	if then == nil || then.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s ago (%s)", age(now.Sub(*then)), then.UTC().Format(time.RFC3339))
}

func commandLine(i launcherapi.Instance) string {
	if i.Options != nil {
		return *i.Options
	}
	return shellquote.Join(i.Args...)
}

func variables(env map[string]launcherapi.EnvValue) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value := env[name].Value
		if file := env[name].FromFile; file != "" {
			value = "(from " + file + ")"
		}
		words = append(words, name+"="+value)
	}
	return strings.Join(words, " ")
}

func annotations(all map[string]string) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		words = append(words, name+"="+all[name])
	}
	return strings.Join(words, " ")
}

func modelFrom(i launcherapi.Instance) string {
	switch {
	case i.ModelFrom == "":
		return ""
	case i.ModelWhy != "":
		return i.ModelFrom + ": " + oneLine(i.ModelWhy)
	}
	return strings.TrimSpace(i.ModelFrom + " " + i.ModelPath)
}

func times(all []launcherapi.PhaseTime) string {
	words := make([]string, len(all))
	for n, phase := range all {
		words[n] = phase.Name + " " + ms(phase.DurationMS)
	}
	return strings.Join(words, ", ")
}
