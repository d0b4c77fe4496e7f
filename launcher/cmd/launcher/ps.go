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

func (c *cli) psCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List the instances",
		Long: `List the instances. REASON says why an instance has failed; with -o wide also why an
instance is in its state, such as why it was not forked.`,
		Example: `  launcher ps
  launcher ps -o wide
  launcher ps -o json`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.formatFlag(cmd, formatWide)
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, _ []string) error {
		list, err := cl.List(ctx)
		if err != nil {
			return err
		}
		gpus, err := cl.GPUs(ctx)
		if err != nil {
			return err
		}
		return c.show(list, func(w io.Writer) error {
			reason := failure
			if c.format == formatWide {
				reason = func(i launcherapi.Instance) string { return oneLine(i.Reason) }
			}
			return instanceTable(list.Instances, gpus.GPUs, time.Now(), reason).write(w)
		})
	})
}

// instanceTable is the table of instances; ages are those at now, and reason gives
// the text of the column of that name.
func instanceTable(instances []launcherapi.Instance, gpus []launcherapi.GPU, now time.Time, reason func(launcherapi.Instance) string) *table {
	t := &table{heading: []string{"ID", "MODEL", "STATE", "GPUS", "PORT", "PID", "START", "IN FLIGHT", "AGE", "REASON"}}
	for _, i := range instances {
		pid, port := "-", "-"
		if i.PID != 0 {
			pid = strconv.Itoa(i.PID)
		}
		if i.Port != 0 {
			port = strconv.Itoa(i.Port)
		}
		t.add(i.InstanceID, i.Model, i.State, indices(i.GPUUUIDs, gpus), port, pid,
			orDash(i.StartedBy), strconv.Itoa(i.InFlight), age(now.Sub(i.CreatedAt)), reason(i))
	}
	return t
}

// indices writes GPUs by index, and by UUID those that are unknown or MIG devices,
// which share the index of their GPU.
func indices(uuids []string, gpus []launcherapi.GPU) string {
	if len(uuids) == 0 {
		return "-"
	}
	names := make([]string, len(uuids))
	for n, uuid := range uuids {
		names[n] = uuid
		for _, g := range gpus {
			if g.UUID == uuid && !g.MIG {
				names[n] = strconv.Itoa(g.Index)
			}
		}
	}
	return strings.Join(names, ",")
}

// reasonWidth is how many letters of a reason stand in the table; all of them
// stand in the JSON form.
const reasonWidth = 100

// failure says in a few words why an instance failed.
func failure(i launcherapi.Instance) string {
	if launcher.State(i.State) != launcher.Failed {
		return ""
	}
	reason := oneLine(i.Reason)
	if runes := []rune(reason); len(runes) > reasonWidth {
		reason = string(runes[:reasonWidth]) + "…"
	}
	return reason
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
