package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
)

// checkCgroups tries each way of keeping groups, the best first, until one
// works.
func checkCgroups(_ context.Context, e *examination) []Result {
	modes := []cgroup.Mode{cgroup.V2, cgroup.V1, cgroup.None}
	if e.Cgroups != "" && e.Cgroups != string(cgroup.Auto) {
		modes = []cgroup.Mode{cgroup.Mode(e.Cgroups)}
	}
	var refused []error
	for _, mode := range modes {
		unlimited, err := tryCgroups(mode)
		if err == nil {
			results := one(judgeCgroups(mode, errors.Join(refused...)))
			if e.ModelStore != "" && e.ModelFetchMemory > 0 {
				results = append(results, judgeFetches(e.ModelFetchMemory, unlimited))
			}
			return results
		}
		refused = append(refused, err)
	}
	return one(Result{
		Name: "cgroups", Status: Fail, Finding: flat(errors.Join(refused...)),
		Remedy: "start with --cgroups auto",
	})
}

// tryCgroups makes a group, and says why its memory cannot be limited.
func tryCgroups(mode cgroup.Mode) (unlimited, err error) {
	m, err := cgroup.Open(cgroup.Options{
		Mode: mode, Name: fmt.Sprintf("hotseat-doctor-%d", os.Getpid()), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	g, err := m.Create("memory")
	if err == nil {
		unlimited = g.LimitMemory(tried)
	}
	return unlimited, errors.Join(err, m.Close())
}

// tried is the limit of a group that is made to see whether there can be one.
const tried = 64 << 20

// judgeFetches: a fetch without a limit leaves as much of a model in main memory as
// there is room, where the kernel may drop what engines are about to read.
func judgeFetches(memory int64, unlimited error) Result {
	r := Result{Name: "model fetches", Status: OK, Finding: fmt.Sprintf("each may take %s of main memory", launcher.BytesText(uint64(memory)))}
	if unlimited != nil {
		r.Status, r.Finding = Warn, fmt.Sprintf("the launcher cannot limit their main memory: %s", flat(unlimited))
		r.Remedy = "enable the memory controller for groups below the launcher's cgroup (on cgroup v1: --cgroups v1), or set --model-fetch-memory 0; fetches have low CPU and disk priority in any case"
	}
	return r
}

// judgeCgroups: with groups, whatever a process of an engine did to hide, it is
// found and killed; without them a daemonised process with a cleared
// environment can escape a stop.
func judgeCgroups(mode cgroup.Mode, refused error) Result {
	r := Result{Name: "cgroups", Status: OK, Finding: fmt.Sprintf("mode %s", mode)}
	if refused != nil {
		r.Finding += fmt.Sprintf(" (%s)", flat(refused))
	}
	if mode == cgroup.None {
		r.Status = Warn
		r.Remedy = "the launcher can track engines only by session and environment; delegate a cgroup to it (Delegate=yes in the unit; in a container, a writable /sys/fs/cgroup)"
	}
	return r
}

// flat writes an error on one line.
func flat(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
