package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func (c *cli) gpusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "gpus",
		Short:             "Show the GPUs, their memory and what holds it",
		Example:           `  launcher gpus`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.formatFlag(cmd)
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, _ []string) error {
		list, err := cl.GPUs(ctx)
		if err != nil {
			return err
		}
		return c.show(list, gpuTable(list).write)
	})
}

func gpuTable(list launcherapi.GPUList) *table {
	t := &table{heading: []string{"INDEX", "UUID", "PRODUCT", "TOTAL", "USED", "FREE", "AWAKE", "ASLEEP", "OTHERS", "TROUBLE"}}
	for _, g := range list.GPUs {
		others := ""
		if g.ForeignBytes > 0 {
			others = launcher.BytesText(g.ForeignBytes)
		}
		trouble := ""
		if !g.Healthy {
			trouble = oneLine(g.HealthReason)
		}
		t.add(strconv.Itoa(g.Index), g.UUID, g.Product, launcher.BytesText(g.MemoryTotalBytes), launcher.BytesText(g.MemoryUsedBytes), launcher.BytesText(g.MemoryFreeBytes),
			holders(g.Awake), holders(g.Sleepers), others, trouble)
	}
	return t
}

// holders writes each holder with the bytes that it holds; ~ marks bytes that are
// expected and not measured yet.
func holders(all []launcherapi.GPUHolder) string {
	if len(all) == 0 {
		return "-"
	}
	words := make([]string, len(all))
	for n, h := range all {
		about := ""
		if !h.Measured {
			about = "~"
		}
		words[n] = fmt.Sprintf("%s (%s%s)", h.InstanceID, about, launcher.BytesText(h.Bytes))
	}
	return strings.Join(words, ", ")
}

// pickGPUs gives the UUIDs of the GPUs that --gpu names, by UUID or index, or by all.
func pickGPUs(ctx context.Context, cl *client.Client, wanted []string) ([]string, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	list, err := cl.GPUs(ctx)
	if err != nil {
		return nil, err
	}
	if slices.Equal(wanted, []string{allGPUs}) {
		wanted = nil
		for _, g := range list.GPUs {
			wanted = append(wanted, g.UUID)
		}
	}
	uuids := make([]string, len(wanted))
	for n, name := range wanted {
		if uuids[n], err = pickGPU(list.GPUs, name); err != nil {
			return nil, err
		}
	}
	return uuids, nil
}

func pickGPU(gpus []launcherapi.GPU, name string) (uuid string, err error) {
	if slices.ContainsFunc(gpus, func(g launcherapi.GPU) bool { return g.UUID == name }) {
		return name, nil
	}
	var found, known []string
	for _, g := range gpus {
		known = append(known, fmt.Sprintf("%d (%s)", g.Index, g.UUID))
		if strconv.Itoa(g.Index) == name {
			found = append(found, g.UUID)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("no GPU %q; there are: %s", name, strings.Join(known, ", "))
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("GPU %s has several MIG devices; name one by its UUID: %s", name, strings.Join(found, ", "))
}
