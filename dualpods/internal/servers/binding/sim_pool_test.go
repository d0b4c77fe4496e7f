package binding

import (
	"context"
	"fmt"

	"hotseat.dev/hotseat/dualpods"
)

// simPool makes launchers for a controller process, as launcherpool does.
type simPool struct{ inc *incarnation }

func (p *simPool) Lacking(_ context.Context, need dualpods.LauncherNeed) *dualpods.LauncherWait {
	if need.Config == "demand" {
		return nil
	}
	return &dualpods.LauncherWait{Why: fmt.Sprintf("DaemonSet %s has no launcher on node %s yet", need.Config, need.Node)}
}

func (p *simPool) Create(ctx context.Context, need dualpods.LauncherNeed) error {
	return (&simClient{inc: p.inc}).write(ctx, "", func(a *simAPI) error {
		if need.Config != "demand" {
			a.s.violated("the controller makes a launcher of %s, which a DaemonSet is to make", need.Config)
		}
		a.s.note("API server: controller makes a launcher of %s on %s", need.Config, need.Node)
		a.s.addLauncher(need.Node, need.Config)
		return nil
	})
}
