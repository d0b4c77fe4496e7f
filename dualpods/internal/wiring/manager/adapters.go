package manager

import (
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/launchers/provider"
	"hotseat.dev/hotseat/dualpods/internal/wiring/logrelay"
	"hotseat.dev/hotseat/dualpods/internal/wiring/telemetry"
)

// watched are launchers as package binding asks for them.
type watched struct {
	*nodeview.Set
	telemetry *telemetry.Telemetry
	relay     *logrelay.Relay
}

func (w watched) Provider(key string) provider.Provider {
	if c := w.Client(key); c != nil {
		return w.relay.Watched(w.telemetry.Launcher(c))
	}
	return nil
}

// logsOf are launchers as package logrelay asks for them.
func logsOf(views *nodeview.Set) func(uid string) logrelay.Launcher {
	return func(uid string) logrelay.Launcher {
		if c := views.Client(uid); c != nil {
			return c
		}
		return nil
	}
}
