package decide

import (
	"maps"

	"hotseat.dev/hotseat/dualpods"
)

// crashed ends the launcher's container, which waits to be started again.
func crashed(o *Observation) {
	o.Launcher.Ended, o.Launcher.Connected, o.Instance = true, false, nil
	o.Launcher.Waits = &dualpods.LauncherWait{Why: "launcher launcher-0 waits in its container inference-server: CrashLoopBackOff", Stuck: true}
}

// crashes are examples of launchers whose container has ended.
var crashes = map[string]example{
	"a deleted one whose launcher's container has ended": {"unbinding, launcher gone", RemoveRecord, but(servedOne(), func(o *Observation) { crashed(o); deleting(o); unserved(o) })},
	"one deleted by force whose launcher's container has ended": {"unbinding, launcher gone", RemoveRecord, but(with("awake"), func(o *Observation) {
		crashed(o)
		o.Requester, o.SPI = Requester{UID: "uid"}, nil
	})},
	"one that is not served yet, its launcher's container ended": {"unbinding, launcher gone", RemoveRecord, but(recorded(), crashed)},
	"one that carries traffic, not ready yet, its launcher's container ended": {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) {
		crashed(o)
		o.SPI.Proxy.Ready, o.Requester.Published, o.Requester.Shown = false, false, false
	})},
	"a served one whose launcher's container has ended":                   {"not awake, ready", BecomeUnready, but(servedOne(), crashed)},
	"the same, once it is unready, though its launcher's container ended": {"died while it served", DeleteRequester, but(servedOne(), func(o *Observation) { crashed(o); o.SPI.Proxy.Ready = false })},
	"a served one whose program hangs, its launcher's container ended":    {"died while it served", DeleteRequester, but(servedOne(), func(o *Observation) { crashed(o); o.SPI = nil })},
	"one that is not bound, its launcher's container ended":               {"launcher starting", Tell, but(fresh(), crashed)},
	"a served one whose launcher Pod is being deleted, and whose container has ended": {"provider leaving", DeleteRequester, but(servedOne(), func(o *Observation) {
		crashed(o)
		o.Launcher.Deleting, o.SPI.Proxy.Ready = true, false
	})},
}

func init() { maps.Copy(examples, crashes) }
