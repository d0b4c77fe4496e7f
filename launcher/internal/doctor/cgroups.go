package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"hotseat.dev/hotseat/launcher/internal/cgroup"
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
		err := tryCgroups(mode)
		if err == nil {
			return one(judgeCgroups(mode, errors.Join(refused...)))
		}
		refused = append(refused, err)
	}
	return one(Result{
		Name: "cgroups", Status: Fail, Finding: flat(errors.Join(refused...)),
		Remedy: "say --cgroups auto",
	})
}

func tryCgroups(mode cgroup.Mode) error {
	m, err := cgroup.Open(cgroup.Options{
		Mode: mode, Name: fmt.Sprintf("hotseat-doctor-%d", os.Getpid()), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return m.Close()
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
		r.Remedy = "engines are tracked by session and environment alone: delegate a cgroup to the launcher (Delegate=yes in the unit; in a container a writable /sys/fs/cgroup)"
	}
	return r
}

// flat writes an error on one line.
func flat(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
