package binding

import (
	"context"
	"fmt"
)

// simPool makes launchers for a controller process, as launcherpool does.
type simPool struct{ inc *incarnation }

func (p *simPool) Lacking(_ context.Context, need Need) *Wait {
	if need.Config == "demand" {
		return nil
	}
	return &Wait{Why: fmt.Sprintf("DaemonSet %s has no launcher on node %s yet", need.Config, need.Node), Reason: LauncherStarting}
}

func (p *simPool) Create(ctx context.Context, need Need) error {
	return (&simClient{inc: p.inc}).write(ctx, "", func(a *simAPI) error {
		if need.Config != "demand" {
			a.s.violated("the controller makes a launcher of %s, which a DaemonSet is to make", need.Config)
		}
		a.s.note("API server: controller makes a launcher of %s on %s", need.Config, need.Node)
		a.s.addLauncher(need.Node, need.Config)
		return nil
	})
}
