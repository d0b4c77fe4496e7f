package binding

import (
	"cmp"
	"context"
	"fmt"

	"hotseat.dev/hotseat/dualpods"
)

// simPool makes launchers for a controller process, as launcherpool does.
type simPool struct{ inc *incarnation }

func (p *simPool) Lacking(_ context.Context, need dualpods.LauncherNeed) *dualpods.LauncherWait {
	if wait := p.notSelected(need); wait != nil {
		return wait
	}
	if need.Config == "demand" || need.Config == "" { // whose launchers have all that anybody needs
		return nil
	}
	return &dualpods.LauncherWait{Why: fmt.Sprintf("DaemonSet %s has no launcher on node %s yet", need.Config, need.Node)}
}

func (p *simPool) Create(ctx context.Context, need dualpods.LauncherNeed) error {
	return (&simClient{inc: p.inc}).write(ctx, "", func(a *simAPI) error {
		config := cmp.Or(need.Config, "demand")
		if config != "demand" {
			a.s.violated("the controller makes a launcher of %s, which a DaemonSet is to make", config)
		}
		a.s.note("API server: controller makes a launcher of %s on %s", config, need.Node)
		a.s.addLauncher(need.Node, config)
		return nil
	})
}
