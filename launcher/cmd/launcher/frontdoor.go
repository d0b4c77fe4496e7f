package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func (c *cli) frontDoorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "front-door",
		Short: "List the models that the front door serves, or choose a profile",
		Long: `List the models that the front door serves: the models of the configuration, and the
instances that clients have created. WHY says what requests for a model wait for, or why
it failed. LAST TOOK says how long its last wake or start took.`,
		Example: `  launcher front-door
  launcher front-door -o json
  launcher front-door profile night`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.formatFlag(cmd)
	cmd = c.remote(cmd, func(ctx context.Context, cl *client.Client, _ []string) error {
		door, err := cl.FrontDoor(ctx)
		if err != nil {
			return err
		}
		list, err := cl.List(ctx)
		if err != nil {
			return err
		}
		gpus, err := cl.GPUs(ctx)
		if err != nil {
			return err
		}
		return c.show(door, func(w io.Writer) error {
			if _, err := fmt.Fprintln(w, visible(doorText(door))); err != nil {
				return err
			}
			return doorTable(door.Models, list.Instances, gpus.GPUs, time.Now()).write(w)
		})
	})
	cmd.AddCommand(c.profileCommand())
	return cmd
}

// doorText says where the front door is, and which profile of which is chosen.
func doorText(door launcherapi.FrontDoor) string {
	text := "front door at " + door.Address
	if len(door.Profiles) > 0 {
		text += fmt.Sprintf(", profile: %s (of %s)", cmp.Or(door.Profile, "none"), strings.Join(door.Profiles, ", "))
	}
	return text
}

// doorTable is the table of the front door's models; next tries are told from now.
func doorTable(models []launcherapi.FrontDoorModel, instances []launcherapi.Instance, gpus []launcherapi.GPU, now time.Time) *table {
	t := &table{heading: []string{"NAME", "STATE", "GPUS", "WAITING", "IN FLIGHT", "LAST TOOK", "WHY"}}
	for _, m := range models {
		var on []string
		for _, i := range instances {
			if i.InstanceID == m.InstanceID {
				on = i.GPUUUIDs
			}
		}
		took := "-"
		if m.TookMS > 0 {
			took = ms(m.TookMS)
		}
		t.add(nameOf(m), m.State, indices(on, gpus), strconv.Itoa(m.Waiting), strconv.Itoa(m.InFlight), took, whyOf(m, now))
	}
	return t
}

// nameOf is the model's own name.
func nameOf(m launcherapi.FrontDoorModel) string {
	if len(m.Names) == 0 { // the API has at least one
		return m.InstanceID
	}
	return m.Names[0]
}

// whyOf says why requests wait for a model. After failures it says what the last one was, and when
// the model is tried again.
func whyOf(m launcherapi.FrontDoorModel, now time.Time) string {
	if m.Failures == 0 {
		return oneLine(m.Why)
	}
	failed := fmt.Sprintf("failed %d times in a row", m.Failures)
	if m.Failures == 1 {
		failed = "failed once"
	}
	if m.HeldBack {
		failed = "held back: " + failed
	}
	if m.RetryAt.After(now) {
		failed += ", next try in " + age(m.RetryAt.Sub(now))
	}
	if m.Failure == "" { // of an older launcher
		return failed
	}
	return failed + ": " + oneLine(m.Failure)
}

func (c *cli) profileCommand() *cobra.Command {
	none := false
	cmd := &cobra.Command{
		Use:   "profile [flags] NAME",
		Short: "Choose a profile of the configuration; it stays chosen when the launcher restarts",
		Example: `  launcher front-door profile night
  launcher front-door profile --none`,
		ValidArgsFunction: c.completeProfiles,
	}
	cmd.Flags().BoolVar(&none, "none", false, "choose no profile")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case none:
			return exactly()(cmd, args)
		case len(args) == 1 && args[0] == "":
			return usagef("NAME is empty; --none chooses no profile")
		}
		return exactly("NAME")(cmd, args)
	}
	c.formatFlag(cmd)
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, args []string) error {
		profile := ""
		if !none {
			profile = args[0]
		}
		door, err := cl.ChooseProfile(ctx, profile)
		if err != nil {
			return err
		}
		return c.show(door, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, visible(doorText(door)))
			return err
		})
	})
}

// completeProfiles offers the profiles of the configuration.
func (c *cli) completeProfiles(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.completeFrom(cmd, func(ctx context.Context, cl *client.Client) ([]string, error) {
		door, err := cl.FrontDoor(ctx)
		return door.Profiles, err
	})
}
