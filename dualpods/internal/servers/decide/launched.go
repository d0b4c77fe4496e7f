package decide

import (
	"time"

	"hotseat.dev/hotseat/dualpods"
)

// Launched is a requester that has a launcher: that of its record, or else the one that would
// serve it.
type Launched struct {
	*Common
	Launcher *Launcher // not nil
}

// launched returns the requester with its launcher; nil: there is no launcher.
func (o *Observation) launched() *Launched {
	if o.Launcher == nil {
		return nil
	}
	return &Launched{&o.Common, o.Launcher}
}

// launcherGone reports whether what the launcher held is gone with it.
func (l *Launched) launcherGone() bool { return l.Node.Gone || l.Launcher.Dead }

// LauncherUnknown reports whether nobody knows the launcher to serve any more: it is gone, or is
// being deleted and does not answer. The kubelet may have ended it, which a pass that began
// before does not know.
func (l *Launched) LauncherUnknown() bool {
	return l.launcherGone() || l.Launcher.Deleting && !l.Launcher.Connected
}

// launcherContainerEnded reports whether what the launcher held is gone with it, or with its
// container.
func (l *Launched) launcherContainerEnded() bool { return l.launcherGone() || l.Launcher.Ended }

// launcherGoing reports whether the launcher takes no more requesters.
func (l *Launched) launcherGoing() bool { return l.Launcher.Deleting || l.Launcher.Dead }

// launcherStarting reports whether the launcher does not run yet.
func (l *Launched) launcherStarting() bool { return l.Launcher.Waits != nil }

// Patience is how long a launcher that has answered before may be silent until
// people are told: one that is killed is back within a second.
const Patience = dualpods.LauncherPatience

// launcherSilent reports whether the launcher does not answer.
func (l *Launched) launcherSilent() bool { return !l.Launcher.Connected }

// launcherJustLost reports whether the launcher answered until a moment ago.
func (l *Launched) launcherJustLost() bool {
	return l.launcherSilent() && l.launcherLostFor() < Patience
}

// launcherLostFor returns for how long the launcher has been silent.
func (l *Launched) launcherLostFor() time.Duration { return l.Now.Sub(l.Launcher.Lost) }

// untilSilent looks again when people are to be told.
func (l *Launched) untilSilent() Step {
	return Step{After: Patience - l.launcherLostFor(), Why: "the stream of launcher " + l.Launcher.Name + " broke off: " + l.Launcher.Why}
}

func (l *Launched) launcherName() string { return l.Launcher.Name }
func (l *Launched) launcherWhy() string  { return l.Launcher.Why }
