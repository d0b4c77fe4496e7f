package cgroup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/fswatch"
)

// within reports whether a group is the other one, or below it.
func within(group, other string) bool {
	return strings.HasPrefix(group+"/", strings.TrimSuffix(other, "/")+"/")
}

// removeWhenEmpty removes the folder of a group and those below, calling wait
// as long as processes are there.
func removeWhenEmpty(ctx context.Context, dir string, wait func(ctx context.Context, dir string) error) error {
	for {
		err := removeFolders(dir)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		if err := wait(ctx, dir); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func removeFolders(dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || gone(err) {
		return nil
	}
	below, listErr := folders(dir)
	if listErr != nil || len(below) == 0 {
		return &os.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	for _, name := range below {
		if err := removeFolders(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return removeFolders(dir)
}

// waitUnpopulated returns when no process is left in a group of cgroup v2 and below it.
// The kernel then sends a modify event for cgroup.events
// (https://docs.kernel.org/admin-guide/cgroup-v2.html, un-populated notification).
func waitUnpopulated(ctx context.Context, dir string) error {
	events := filepath.Join(dir, "cgroup.events")
	err := fswatch.Until(ctx, events, func() bool {
		n, ok := readKey(events, "populated")
		return n == 0 || !ok
	})
	if gone(err) {
		return nil
	}
	return err
}

// waitBriefly waits a millisecond. cgroup v1 has no event for a group that became empty,
// but a process leaves its group as soon as it has ended.
func waitBriefly(ctx context.Context, _ string) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Millisecond):
		return nil
	}
}
