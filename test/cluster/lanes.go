package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"
)

// EnvNames names the environment variable that lists clusters that are alike, for a
// program that can use several side by side. Blanks separate the names; the first one
// is that of [EnvName].
const EnvNames = "HOTSEAT_CLUSTERS"

// What a cluster of the end-to-end suite takes; spec/testing.md tells how much of it.
const (
	laneBytes     = 512 << 20 // without its nodes
	laneNodeBytes = 512 << 20
)

// Lanes returns how many clusters, of so many nodes each, this machine keeps busy with
// the end-to-end suite: three for two processors, at least one, and no more than there
// is memory for.
func Lanes(nodes int) (int, error) {
	var free uint64
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("cannot tell how much memory is free: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &free); err == nil {
			break
		}
	}
	fit := free << 10 / uint64(laneBytes+nodes*laneNodeBytes)
	return max(1, min(3*runtime.NumCPU()/2, int(fit))), nil
}

// UpAll starts several clusters that are alike, side by side. Their names are that of
// the options with -1, -2 and so on.
func UpAll(ctx context.Context, o Options, n int) ([]*Cluster, error) {
	if err := Sweep(); err != nil {
		return nil, err
	}
	clusters := make([]*Cluster, n)
	ups, ctx := errgroup.WithContext(ctx)
	for i := range clusters {
		one := o
		one.Name = fmt.Sprintf("%s-%d", o.Name, i+1)
		ups.Go(func() error {
			c, err := one.cluster()
			if err == nil {
				err = c.up(ctx, one)
			}
			if err == nil {
				clusters[i] = c
			}
			return err
		})
	}
	if err := ups.Wait(); err != nil {
		return nil, errors.Join(err, DownAll(clusters))
	}
	return clusters, nil
}

// DownAll ends clusters, nil ones among them.
func DownAll(clusters []*Cluster) error {
	var downs errgroup.Group
	errs := make([]error, len(clusters))
	for i, c := range clusters {
		if c != nil {
			downs.Go(func() error { errs[i] = c.Down(); return nil })
		}
	}
	_ = downs.Wait() // which has no error of its own
	return errors.Join(errs...)
}

// Environ is what a program that is to use the clusters finds in its environment:
// that of the first one, and the names of all.
func Environ(clusters []*Cluster) []string {
	var names []string
	for _, c := range clusters {
		names = append(names, c.Name)
	}
	return append(clusters[0].Environ(), EnvNames+"="+strings.Join(names, " "))
}
