package decide

import (
	"time"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// fresh is a requester that runs and has our finalizer, on a node whose launcher
// answers.
func fresh() Observation {
	wanted := form.Form{Args: []string{"org/model"}, Port: 8000, GPUs: 1, LauncherConfig: "vllm"}
	return Observation{
		Common: Common{
			Now: now, Node: Node{Name: "node-0"}, Form: wanted,
			Requester: Requester{
				UID: "uid", Namespace: "ns", Name: "req", Instance: "model-1", Exists: true, Running: true, Finalizer: true, GPUs: 1,
				AdminAddress: "10.1.0.5:8081", Program: podmeta.ServingContainer,
			},
			SPI: &SPI{GPUs: []string{"GPU-0"}, Proxy: requesterapi.Proxy{State: requesterapi.StateUnbound}},
		},
		Launcher: &Launcher{Name: "launcher-0", Config: "vllm", IP: "10.1.0.2", Connected: true, GPUs: []string{"GPU-0", "GPU-1"}},
	}
}

// recorded is one with a record.
func recorded() Observation {
	o := fresh()
	o.Record = &podmeta.Binding{
		Instance: "model-1", RequesterUID: "uid", Namespace: "ns", Name: "req", GPUs: []string{"GPU-0"}, ServingPort: 8000,
		SpecHash: o.Form.Hash(), New: true, Attempt: 1, Since: now,
	}
	return o
}

// with is a recorded one whose instance is in that state.
func with(state string) Observation {
	o := recorded()
	o.Record.New = false
	o.Instance = &launcherapi.Instance{InstanceID: "model-1", State: state, Port: 40001}
	return o
}

// servedOne is one that is served.
func servedOne() Observation {
	o := with("awake")
	o.Attempt = Attempt{Asked: true, Over: true}
	o.SPI.Proxy = requesterapi.Proxy{ProxyConfig: o.Awake().Proxy(), State: requesterapi.StateBound, Ready: true}
	o.Requester.Published, o.Requester.Shown = true, true
	return o
}

// but is an observation with a change.
func but(o Observation, change func(*Observation)) Observation {
	change(&o)
	return o
}

// ahead is one whose program does not run yet, and of which the kubelet has told.
func ahead(o Observation) Observation {
	o.Requester.Running, o.SPI, o.Ahead, o.AsksAhead = false, nil, true, o.Record == nil
	o.Kubelet = &dualpods.Allocation{GPUs: []string{"GPU-0"}, Early: true}
	if o.Record != nil {
		o.Record.Ahead = true
	}
	return o
}

// gateOpenAhead is one whose gate is open, and whose program does not run yet.
func gateOpenAhead(state string) Observation {
	o := ahead(with(state))
	o.Requester.Gate, o.Requester.GateOpen = true, true
	return o
}

// holdsFor has the requester program hold connections for a binding.
func holdsFor(binding string) func(*Observation) {
	return func(o *Observation) {
		o.Requester.Gate, o.Attempt.Asked = true, true
		o.SPI.Proxy.CanHold, o.SPI.Proxy.Holding = true, binding
	}
}

func deleting(o *Observation) { o.Requester.Deleting = true }

// deletedNow has somebody delete the requester a moment ago.
func deletedNow(o *Observation) {
	o.Requester.Deleting, o.Requester.GraceEnds = true, now.Add(30*time.Second)
}

// toldToEnd has the requester program have got SIGTERM, with so much of its shutdown delay
// left.
func toldToEnd(o *Observation, left time.Duration) {
	o.SPI.Proxy.Ready, o.SPI.Proxy.Terminating, o.SPI.Proxy.ShutdownDelayMS = false, true, left.Milliseconds()
}

// endingNow has the kubelet say that it ends the requester.
func endingNow(o *Observation) { o.Requester.Ending = true }

// waits has a ClusterModelCache have the requester wait for its model.
func waits(o *Observation) {
	o.Keeper = &dualpods.ModelKeeper{Name: "kept", Waits: true, Node: "node node-0 is fetching its model and has 40 % of it"}
}

// unserved takes from one that is served what the requester's side shows of it.
func unserved(o *Observation) {
	o.SPI.Proxy = requesterapi.Proxy{State: requesterapi.StateUnbound}
	o.Requester.Published, o.Requester.Shown = false, false
}

// refusedFor is a swap, to make an instance or to wake it, that the launcher
// refused with that code.
func refusedFor(makes bool, code string) func(*Observation) {
	return func(o *Observation) {
		o.Record.New = makes
		o.Attempt = Attempt{Asked: true, Over: true, Failure: "refused: " + code, Code: code}
	}
}

// refusedOf has the requester program refuse some calls, for the third time a
// moment ago.
func refusedOf(o *Observation, calls ...Action) {
	o.Troubles = map[Action]Trouble{}
	for _, do := range calls {
		o.Troubles[do] = Trouble{Count: TellTrouble, Why: "no", Until: o.Now.Add(time.Second)}
	}
}

// example is an observation, and the row that decides it.
type example struct {
	row string
	do  Action
	o   Observation
}

// examples has each row at least once; the keys say what is so.
var examples = map[string]example{
	"a requester that was deleted before anybody looked at it": {"leaving, never bound", Nothing, but(fresh(), func(o *Observation) { deleting(o); o.Requester.Finalizer, o.SPI = false, nil })},
	"a deleted one whose record is gone":                       {"leaving, released", RemoveFinalizer, but(fresh(), deleting)},
	"a deleted one whose launcher has ended":                   {"unbinding, launcher gone", RemoveRecord, but(with("awake"), func(o *Observation) { deleting(o); o.Launcher.Dead = true })},
	"a deleted one on a node that is gone, its launcher silent": {"unbinding, launcher gone", RemoveRecord, but(with("awake"), func(o *Observation) {
		o.Node.Gone, o.Launcher.Connected = true, false
	})},
	"a deleted one whose clients are being seen off":              {"unbinding, connections end", Nothing, but(servedOne(), func(o *Observation) { deleting(o); o.Calls.Unbind = true })},
	"a deleted one whose preStop hook may run":                    {"leaving, still serving", Retry, but(servedOne(), deletedNow)},
	"a deleted one whose launcher fell silent while it serves":    {"leaving, still serving", Retry, but(servedOne(), func(o *Observation) { deletedNow(o); o.Launcher.Connected = false })},
	"a deleted one that was told to end a moment ago":             {"leaving, still serving", Retry, but(servedOne(), func(o *Observation) { deletedNow(o); toldToEnd(o, time.Second) })},
	"a deleted one that was told to end, its shutdown delay over": {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) { deletedNow(o); toldToEnd(o, 0) })},
	"a deleted one whose grace is over, its program never told":   {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) { deletedNow(o); o.Requester.GraceEnds = now.Add(KillMargin) })},
	"a deleted one whose model died while it still served":        {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) { deletedNow(o); o.Instance.State = "failed" })},
	"a deleted one whose launcher's container has ended":          {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) { deletedNow(o); o.Launcher.Connected, o.Launcher.Ended = false, true })},
	"a deleted one that was not ready yet":                        {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) { deletedNow(o); o.SPI.Proxy.Ready = false })},
	"a deleted one that names other GPUs than its record":         {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) { deletedNow(o); o.SPI.GPUs = []string{"GPU-1"} })},
	"a deleted one that forwards for an earlier record":           {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) { deletedNow(o); o.Record.Since = now.Add(time.Second) })},
	"a deleted one that forwards for an earlier attempt":          {"leaving, still serving", Retry, but(servedOne(), func(o *Observation) { deletedNow(o); o.Record.Attempt = 2 })},
	"a deleted one that an earlier controller began to unbind":    {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) { deletedNow(o); o.SPI.Proxy.State = requesterapi.StateDraining })},
	"a deleted one whose node is gone while it is being unbound":  {"unbinding, launcher gone", RemoveRecord, but(servedOne(), func(o *Observation) { deletedNow(o); o.SPI, o.Calls.Unbind, o.Node.Gone = nil, true, true })},
	"a deleted one that a slice leads to still": {"unbinding, in its endpoints", Retry, but(servedOne(), func(o *Observation) {
		deletedNow(o)
		toldToEnd(o, 0)
		o.Slices.Lead = true
	})},
	"a deleted one that the slices left a moment ago": {"unbinding, in its endpoints", Retry, but(servedOne(), func(o *Observation) {
		deletedNow(o)
		toldToEnd(o, 0)
		o.Slices.Left = now.Add(-time.Second)
	})},
	"one that the kubelet ends, and that a slice leads to still": {"unbinding, in its endpoints", Retry, but(servedOne(), func(o *Observation) {
		o.Requester.Shown = false
		toldToEnd(o, 0)
		o.Slices.Lead = true
	})},
	"one that has other GPUs, and that a slice leads to still": {"unbinding, in its endpoints", Retry, but(servedOne(), func(o *Observation) {
		o.SPI.GPUs, o.Requester.Shown, o.Slices.Lead = []string{"GPU-1"}, false, true
	})},
	"a deleted one that the slices left long ago": {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) {
		deletedNow(o)
		toldToEnd(o, 0)
		o.Slices.Left = now.Add(-EndpointsDelay)
	})},
	"a deleted one that a slice leads to, its grace over": {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) {
		deletedNow(o)
		o.Requester.GraceEnds, o.Slices.Lead = now.Add(KillMargin), true
	})},
	"a deleted one that a slice leads to, its model asleep": {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) {
		deletedNow(o)
		o.Instance.State, o.Slices.Lead = "sleeping", true
	})},
	"a deleted one that a slice leads to, and that refuses connections already": {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) {
		deletedNow(o)
		o.SPI.Proxy.State, o.Slices.Lead = requesterapi.StateDraining, true
	})},
	"one that names other GPUs than its record, its launcher gone, and whose program never unbinds": {"unbinding, launcher gone", RemoveRecord, but(servedOne(), func(o *Observation) {
		o.SPI.GPUs, o.Requester.Shown, o.Launcher.Dead = []string{"GPU-1"}, false, true
		o.Troubles = map[Action]Trouble{Unbind: {Count: enoughUnbinds, Until: now}}
	})},
	"the same, and its launcher's container is started again": {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) {
		o.SPI.GPUs, o.Requester.Shown, o.Launcher.Ended = []string{"GPU-1"}, false, true
		o.Troubles = map[Action]Trouble{Unbind: {Count: enoughUnbinds, Until: now}}
	})},
	"a deleted one that carries traffic":                              {"unbinding, carries", Unbind, but(servedOne(), deleting)},
	"a deleted one that carries traffic to a launcher that has ended": {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) { deleting(o); o.Launcher.Dead = true })},
	"a deleted one that carries traffic to a launcher that has vanished": {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) {
		deleting(o)
		o.Requester.Finalizer, o.Launcher, o.Record, o.Instance = true, nil, nil, nil
	})},
	"a deleted one whose launcher is silent": {"resting, launcher silent", Tell, but(with("awake"), func(o *Observation) { deleting(o); o.Launcher.Connected = false })},
	"a deleted one whose launcher fell silent just now": {"resting, launcher just lost", Retry, but(with("awake"), func(o *Observation) {
		deleting(o)
		o.Launcher.Connected, o.Launcher.Lost = false, now.Add(-time.Second)
	})},
	"one deleted by force whose launcher is silent": {"resting, launcher silent", Nothing, but(with("awake"), func(o *Observation) {
		o.Requester, o.SPI, o.Launcher.Connected = Requester{UID: "uid"}, nil, false
	})},
	"a deleted one whose model falls asleep":      {"resting, moving", Nothing, but(with("falling_asleep"), deleting)},
	"a deleted one whose model was told to sleep": {"resting, moving", Nothing, but(with("awake"), func(o *Observation) { deleting(o); o.Calls.Sleep = true })},
	"a deleted one whose model is awake":          {"resting, awake", Sleep, but(with("awake"), deleting)},
	"a deleted one whose model does not sleep": {"resting, never sleeps", DeleteInstance, but(with("awake"), func(o *Observation) {
		deleting(o)
		o.Troubles = map[Action]Trouble{Sleep: {Count: enoughSleeps, Why: "the engine refused"}}
	})},
	"one deleted by force whose model is awake": {"resting, awake", Sleep, but(with("awake"), func(o *Observation) {
		o.Requester = Requester{UID: "uid"}
		o.SPI = nil
	})},
	"one that has ended, with its model awake": {"resting, awake", Sleep, but(with("awake"), func(o *Observation) { o.Requester.Finished, o.SPI = true, nil })},
	"one whose record is of another GPU":       {"resting, awake", Sleep, but(with("awake"), func(o *Observation) { o.Record.GPUs = []string{"GPU-1"} })},
	"a deleted one whose model starts":         {"resting, starting or failed", DeleteInstance, but(with("starting"), func(o *Observation) { deleting(o); o.Attempt.Asked = true })},
	"a deleted one whose model failed":         {"resting, starting or failed", DeleteInstance, but(with("failed"), deleting)},
	"a deleted one whose swap waits perhaps, to make its model": {"resting, swap waits", CallOff, but(recorded(), func(o *Observation) {
		deleting(o)
		o.Attempt.Asked = true
	})},
	"a deleted one whose swap waits perhaps, to wake its model": {"resting, swap waits", CallOff, but(with("sleeping"), func(o *Observation) {
		deleting(o)
		o.Attempt.Asked = true
	})},
	"a deleted one whose swap could not be called off": {"resting, swap under way", Nothing, but(recorded(), func(o *Observation) {
		deleting(o)
		o.Attempt.Asked, o.Calls.CallOff = true, true
	})},
	"a deleted one whose swap drains another": {"resting, swap under way", Nothing, but(with("sleeping"), func(o *Observation) {
		deleting(o)
		o.Attempt.Asked, o.Instance.SwapID = true, "swap"
	})},
	"a deleted one whose swap an earlier controller may have asked for": {"resting, swap waits", CallOff, but(recorded(), deleting)},
	"the same, while it is being called off": {"resting, swap under way", Nothing, but(recorded(), func(o *Observation) {
		deleting(o)
		o.Calls.CallOff, o.Calls.CallingOff = true, true
	})},
	"a deleted one whose model sleeps": {"resting, asleep or gone", RemoveRecord, but(with("sleeping"), func(o *Observation) {
		deleting(o)
		o.Attempt = Attempt{Asked: true, Over: true}
	})},
	"a deleted one whose model was never started": {"resting, asleep or gone", RemoveRecord, but(recorded(), func(o *Observation) {
		deleting(o)
		o.Calls.CallOff = true
	})},
	"one whose input changed before anything was started": {"resting, asleep or gone", RemoveRecord, but(recorded(), func(o *Observation) {
		o.Form.Args, o.Calls.CallOff = []string{"org/other"}, true
	})},
	"one whose input changed while its model starts": {"resting, starting or failed", DeleteInstance, but(with("starting"), func(o *Observation) {
		o.Form.Args, o.Attempt.Asked = []string{"org/other"}, true
	})},
	"one whose input changed while its model wakes": {"resting, moving", Nothing, but(with("waking"), func(o *Observation) {
		o.Form.Args, o.Attempt.Asked = []string{"org/other"}, true
	})},
	"one whose input changed before it served what has come up": {"resting, awake", Sleep, but(with("awake"), func(o *Observation) { o.Form.Args = []string{"org/other"} })},
	"one whose port changed while its model starts":             {"resting, starting or failed", DeleteInstance, but(with("starting"), func(o *Observation) { o.Form.Port = 9000 })},
	"one that asks for another launcher while its model starts": {"resting, starting or failed", DeleteInstance, but(with("starting"), func(o *Observation) { o.Form.LauncherConfig = "other" })},
	"one whose input changed, and whose model somebody put to sleep": {"not awake, ready", BecomeUnready, but(servedOne(), func(o *Observation) {
		o.Form.Args, o.Instance.State = []string{"org/other"}, "sleeping"
	})},
	"a deleted one whose instance died and is started again while its program is bound": {"resting, starting or failed", DeleteInstance, but(servedOne(), func(o *Observation) {
		deleting(o)
		o.Instance.State, o.Requester.Shown, o.Requester.Published = "starting", false, false
	})},
	"one that has ended and is shown, after an uninstallation": {"ended, shown", Retract, but(servedOne(), func(o *Observation) {
		o.Requester.Finished, o.Requester.Running, o.SPI, o.Record, o.Requester.Finalizer = true, false, nil, nil, false
	})},
	"one whose containers have ended while it was shown": {"ended, shown", Retract, but(servedOne(), func(o *Observation) { o.Requester.Finished, o.Requester.Running, o.SPI = true, false, nil })},
	"the same, shown no more": {"resting, awake", Sleep, but(servedOne(), func(o *Observation) {
		o.Requester.Finished, o.Requester.Running, o.Requester.Shown, o.SPI = true, false, false, nil
	})},
	"a served one whose deadline has passed":                  {"ended, shown", Retract, but(servedOne(), endingNow)},
	"one whose deadline has passed, its preStop hook running": {"leaving, still serving", Retry, but(servedOne(), func(o *Observation) { endingNow(o); o.Requester.Shown = false })},
	"one whose deadline has passed while its swap waited":     {"resting, swap waits", CallOff, but(recorded(), func(o *Observation) { endingNow(o); o.Attempt.Asked = true })},
	"a served one that the kubelet ends, told a moment ago":   {"ended, shown", Retract, but(servedOne(), func(o *Observation) { toldToEnd(o, time.Second) })},
	"a served one that the kubelet ends, shown no more":       {"leaving, still serving", Retry, but(servedOne(), func(o *Observation) { toldToEnd(o, time.Second); o.Requester.Shown = false })},
	"one that the kubelet ends, its shutdown delay over":      {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) { toldToEnd(o, 0); o.Requester.Shown = false })},
	"one that the kubelet ends, its model dead":               {"unbinding, carries", Unbind, but(servedOne(), func(o *Observation) { toldToEnd(o, time.Second); o.Requester.Shown, o.Instance.State = false, "failed" })},
	"one that the kubelet ends, unbound":                      {"resting, awake", Sleep, but(with("awake"), func(o *Observation) { toldToEnd(o, 0) })},
	"one that the kubelet ends before it was bound":           {"leaving, released", RemoveFinalizer, but(fresh(), func(o *Observation) { toldToEnd(o, 0) })},
	"a DaemonSet's on a node that is closed":                  {"no record", AddRecord, but(fresh(), func(o *Observation) { o.Node.Unschedulable, o.Requester.Tolerates = true, true })},
	"a served one whose node is gone":                         {"ended, shown", Retract, but(servedOne(), func(o *Observation) { o.Node.Gone, o.SPI = true, nil })},
	"one that is being deleted, and whose node is gone": {"unbinding, launcher gone", RemoveRecord, but(servedOne(), func(o *Observation) {
		deleting(o)
		o.Node.Gone, o.SPI = true, nil
	})},
	"the same, once it is unready and still published": {"unwanted, shown", Retract, but(servedOne(), func(o *Observation) {
		o.Form.Args, o.Instance.State, o.SPI.Proxy.Ready = []string{"org/other"}, "sleeping", false
	})},
	"one whose program names other GPUs after a restart, still published": {"unwanted, shown", Retract, but(servedOne(), func(o *Observation) { o.SPI.GPUs = []string{"GPU-1"} })},
	"a deleted one whose program hangs, and carries traffic perhaps":      {"unbinding, requester silent", Retry, but(servedOne(), func(o *Observation) { deleting(o); o.SPI, o.Requester.Silent = nil, now.Add(-time.Second) })},
	"a deleted one whose record was damaged, and whose program hangs": {"unbinding, requester silent", Retry, but(fresh(), func(o *Observation) {
		deleting(o)
		o.Requester.Finalizer, o.Unread = true, "launcher node-0: no record"
		o.SPI, o.Requester.Silent = nil, now.Add(-time.Second)
	})},
	"one whose input changed while its program has hung for a minute": {"unbinding, requester silent for long", Tell, but(with("awake"), func(o *Observation) {
		o.Form.Args, o.SPI, o.Requester.Silent = []string{"org/other"}, nil, now.Add(-time.Minute)
	})},
	"a published one whose record is gone": {"not bound, shown", Retract, but(servedOne(), func(o *Observation) { o.Record, o.SPI.Proxy.Ready = nil, false })},
	"a ready one whose record is gone":     {"launcher gone, ready", BecomeUnready, but(servedOne(), func(o *Observation) { o.Record = nil })},
	"a served one whose launcher is being deleted and does not answer any more": {"launcher gone, ready", BecomeUnready, but(servedOne(), func(o *Observation) {
		o.Launcher.Deleting, o.Launcher.Connected = true, false
	})},
	"the same, told to become unready before": {"provider leaving", DeleteRequester, but(servedOne(), func(o *Observation) {
		o.Launcher.Deleting, o.Launcher.Connected, o.SPI.Proxy.Ready = true, false, false
	})},
	"one whose launcher has ended, and whose program refused to become unready a moment ago": {"launcher gone, stays ready", Unbind, but(servedOne(), func(o *Observation) {
		o.Launcher.Dead = true
		refusedOf(o, BecomeUnready)
	})},
	"one whose launcher has ended, which is being unbound and shown no more": {"provider leaving", DeleteRequester, but(servedOne(), func(o *Observation) {
		o.Launcher.Dead, o.Requester.Shown, o.Calls.Unbind = true, false, true
		refusedOf(o, BecomeUnready)
	})},
	"one whose launcher has ended, and whose program refused to unbind too": {"provider leaving", DeleteRequester, but(servedOne(), func(o *Observation) {
		o.Launcher.Dead = true
		refusedOf(o, BecomeUnready, Unbind)
	})},
	"a served one whose record somebody damaged":                   {"record damaged", Tell, but(servedOne(), func(o *Observation) { o.Record, o.Unread = nil, "launcher l: binding.x is no JSON" })},
	"one whose record may be damaged and that is silent":           {"record damaged", Tell, but(servedOne(), func(o *Observation) { o.Record, o.Unread, o.SPI = nil, "launcher l: binding.x is no JSON", nil })},
	"a fresh one beside a record that somebody damaged":            {"no record", AddRecord, but(fresh(), func(o *Observation) { o.Unread = "launcher l: binding.x is no JSON" })},
	"one that waits, and another that is bound on its GPU":         {"GPU claimed twice", Tell, but(recorded(), func(o *Observation) { o.Rivals = []string{"ns/other"} })},
	"one whose model starts, and another that is bound on its GPU": {"moving", Nothing, but(with("starting"), func(o *Observation) { o.Rivals = []string{"ns/other"} })},
	"a served one whose GPU another names":                         {"", Nothing, but(servedOne(), func(o *Observation) { o.Rivals = []string{"ns/other"} })},
	"a served one whose program cannot tell its GPUs any more":     {"", Nothing, but(servedOne(), func(o *Observation) { o.SPI.GPUs, o.SPI.Wrong = nil, "no driver" })},
	"a served one whose GPU another names, its engine killed":      {"not awake, ready", BecomeUnready, but(servedOne(), func(o *Observation) { o.Rivals, o.Instance.State = []string{"ns/other"}, "failed" })},
	"wrong input": {"input wrong", Tell, but(fresh(), func(o *Observation) { o.Problems = []podmeta.Problem{{Field: "f", Message: "m"}} })},
	"wrong input of one that waits for a node": {"input wrong", Tell, but(fresh(), func(o *Observation) { o.Problems, o.Node.Name = []podmeta.Problem{{Field: "f"}}, "" })},
	"a node that was cordoned in between":      {"node closed", DeleteRequester, but(fresh(), func(o *Observation) { o.Node.Unschedulable = true })},
	"a launcher that vanished while nobody looked": {"provider vanished", DeleteRequester, but(servedOne(), func(o *Observation) {
		o.Record, o.Launcher, o.Instance, o.Requester.Shown, o.SPI.Proxy.Ready = nil, nil, nil, false, false
	})},
	"a launcher that vanished, and wrong input": {"provider vanished", DeleteRequester, but(servedOne(), func(o *Observation) {
		o.Record, o.Launcher, o.Instance, o.Requester.Shown, o.SPI.Proxy.Ready = nil, nil, nil, false, false
		o.Problems = []podmeta.Problem{{Field: "f"}}
	})},
	"a launcher Pod that somebody deletes":                      {"provider leaving", DeleteRequester, but(servedOne(), func(o *Observation) { o.Launcher.Deleting = true })},
	"a served one whose container is to be started again":       {"not carried, shown", Retract, but(servedOne(), func(o *Observation) { o.Requester.Running, o.SPI = false, nil })},
	"the same, once nothing shows that it serves":               {"not running", Nothing, but(servedOne(), func(o *Observation) { o.Requester.Running, o.SPI, o.Requester.Shown = false, nil, false })},
	"a served one whose program was started anew":               {"carries nothing", Bind, but(servedOne(), func(o *Observation) { o.SPI.Proxy = requesterapi.Proxy{State: requesterapi.StateUnbound} })},
	"a served one whose program carries for another":            {"not carried, shown", Retract, but(servedOne(), func(o *Observation) { o.SPI.Proxy.Binding = "another" })},
	"a served one that a controller was unbinding that is gone": {"not carried, shown", Retract, but(servedOne(), func(o *Observation) { o.SPI.Proxy.State, o.SPI.Proxy.Ready = requesterapi.StateDraining, false })},
	"a served one whose program was started anew, and hangs":    {"requester silent", Retry, but(servedOne(), func(o *Observation) { o.SPI, o.Requester.Silent = nil, now })},
	"a served one whose new program refuses to bind": {"not carried, shown", Retract, but(servedOne(), func(o *Observation) {
		o.SPI.Proxy = requesterapi.Proxy{State: requesterapi.StateUnbound}
		refusedOf(o, Bind)
	})},
	"a served one whose program was started anew while the launcher is silent": {"not carried, shown", Retract, but(servedOne(), func(o *Observation) {
		o.SPI.Proxy = requesterapi.Proxy{State: requesterapi.StateUnbound}
		o.Launcher.Connected, o.Instance = false, nil
	})},
	"a container whose image cannot be pulled": {"cannot run", Tell, but(fresh(), func(o *Observation) {
		o.Requester.Running, o.SPI, o.Requester.Stuck = false, nil, "waits in its container inference-server: ImagePullBackOff no such image"
	})},
	"one that no node has room for": {"not running", Nothing, but(fresh(), func(o *Observation) {
		o.Node.Name, o.Requester.Running, o.SPI, o.Requester.Stuck = "", false, nil, "has not been placed: 0/3 nodes are available"
	})},
	"a container that does not run yet, whose GPUs the kubelet tells": {"no record", AddRecord, ahead(fresh())},
	"the same, told of as many as it does not ask for":                {"not running", Nothing, but(ahead(fresh()), func(o *Observation) { o.Ahead, o.AsksAhead, o.Kubelet.GPUs = false, false, []string{"GPU-0", "GPU-1"} })},
	"one whose kubelet was just asked, before it runs": {"kubelet asked ahead", Retry, but(ahead(fresh()), func(o *Observation) {
		o.Ahead, o.Kubelet = false, &dualpods.Allocation{Why: "it has none", Since: now.Add(-time.Second)}
	})},
	"one whose kubelet is silent, before it runs": {"not running", Nothing, but(ahead(fresh()), func(o *Observation) {
		o.Ahead, o.Kubelet = false, &dualpods.Allocation{Why: "no", Since: now.Add(-time.Minute)}
	})},
	"one bound ahead": {"swap not asked", Swap, ahead(recorded())},
	"one bound ahead on a GPU that another is bound on": {"GPU bound to another", Nothing, but(ahead(recorded()), func(o *Observation) { o.BoundToo = "ns/other" })},
	"the same, once its program runs":                   {"swap not asked", Swap, but(recorded(), func(o *Observation) { o.BoundToo = "ns/other" })},
	"one bound ahead, whose model is awake":             {"awake before it runs", Nothing, ahead(with("awake"))},
	"the same, whose gate is shut":                      {"awake before it runs, gate shut", OpenGate, but(ahead(with("awake")), func(o *Observation) { o.Requester.Gate = true })},
	"the same, told to rest":                            {"told to rest", Nothing, but(ahead(with("awake")), func(o *Observation) { o.Requester.Gate, o.Calls.Sleep = true, true })},
	"the same, whose gate is open":                      {"awake before it runs", Nothing, gateOpenAhead("awake")},
	"the same, asleep by hand":                          {"not awake, shown", Retract, gateOpenAhead("sleeping")},
	"the same, ended":                                   {"not awake, shown", Retract, gateOpenAhead("failed")},
	"the same, whose launcher is silent":                {"not carried, shown", Retract, but(gateOpenAhead("awake"), func(o *Observation) { o.Launcher.Connected = false })},
	"the same, ended when its program runs": {"not awake, shown", Retract, but(servedOne(), func(o *Observation) {
		o.Instance.State, o.Requester.Shown, o.Requester.Gate, o.Requester.GateOpen, o.Record.Ahead = "failed", false, true, true, true
		o.SPI.Proxy = requesterapi.Proxy{State: requesterapi.StateUnbound}
	})},
	"one bound ahead, whose program runs": {"kubelet just asked", Retry, but(with("awake"), func(o *Observation) {
		o.Record.Ahead, o.Kubelet = true, &dualpods.Allocation{GPUs: []string{"GPU-0"}, Early: true, Since: now}
	})},
	"one bound ahead, whose kubelet is silent since": {"kubelet silent", Tell, but(with("awake"), func(o *Observation) {
		o.Record.Ahead, o.Kubelet = true, &dualpods.Allocation{GPUs: []string{"GPU-0"}, Early: true, Since: now.Add(-time.Minute)}
	})},
	"one bound ahead, and compared": {"carries nothing", Bind, but(with("awake"), func(o *Observation) {
		o.Record.Ahead, o.Kubelet = true, &dualpods.Allocation{GPUs: []string{"GPU-0"}}
	})},
	"one bound ahead whose program cannot tell its GPUs": {"GPUs unknown", Tell, but(with("awake"), func(o *Observation) { o.Record.Ahead, o.SPI.Wrong = true, "no driver answers" })},
	"one bound ahead that the kubelet has given another GPU since": {"resting, awake", Sleep, but(with("awake"), func(o *Observation) {
		o.Record.Ahead, o.Kubelet = true, &dualpods.Allocation{GPUs: []string{"GPU-1"}}
	})},
	"a served one bound ahead, after a restart of the controller": {"", Nothing, but(servedOne(), func(o *Observation) { o.Record.Ahead, o.Kubelet = true, &dualpods.Allocation{Why: "no", Since: now} })},
	"a served one bound ahead, whose new program cannot tell its GPUs": {"not carried, shown", Retract, but(servedOne(), func(o *Observation) {
		o.SPI.Proxy, o.SPI.Wrong, o.Record.Ahead = requesterapi.Proxy{State: requesterapi.StateUnbound}, "no driver answers", true
	})},
	"a served one bound ahead, whose program was started anew, before the kubelet is asked": {"not carried, shown", Retract, but(servedOne(), func(o *Observation) {
		o.SPI.Proxy, o.Record.Ahead, o.Kubelet = requesterapi.Proxy{State: requesterapi.StateUnbound}, true, &dualpods.Allocation{Why: "no", Since: now}
	})},
	"one without our finalizer that does not become unready": {"not awake, not held", AddFinalizer, but(servedOne(), func(o *Observation) {
		o.Instance.State, o.Requester.Finalizer = "sleeping", false
		refusedOf(o, BecomeUnready, Unbind)
	})},
	"a container that does not run yet":            {"not running", Nothing, but(fresh(), func(o *Observation) { o.Requester.Running, o.SPI = false, nil })},
	"a requester program that does not answer yet": {"requester silent", Retry, but(fresh(), func(o *Observation) { o.SPI, o.Requester.Silent = nil, now.Add(-time.Second) })},
	"a requester program that has not answered for a minute": {"requester silent for long", Tell, but(fresh(), func(o *Observation) {
		o.SPI, o.Requester.Silent = nil, now.Add(-time.Minute)
	})},
	"a requester program that refuses the controller": {"requester silent for long", Tell, but(fresh(), func(o *Observation) {
		o.SPI, o.Requester.Silent, o.Requester.Refuses = nil, now.Add(-time.Minute), true
	})},
	"the same, once it was told": {"requester silent for long", Nothing, but(fresh(), func(o *Observation) {
		o.SPI, o.Requester.Silent = nil, now.Add(-time.Minute)
		o.Requester.Told = "the requester program does not answer at 10.1.0.5:8081: container inference-server should run it"
	})},
	"a requester program that cannot tell its GPUs":   {"GPUs unknown", Tell, but(fresh(), func(o *Observation) { o.SPI.GPUs, o.SPI.Wrong = nil, "no driver" })},
	"a requester program that names two GPUs for one": {"GPUs do not match", Tell, but(fresh(), func(o *Observation) { o.SPI.GPUs = []string{"GPU-0", "GPU-1"} })},
	"a requester program that names one GPU twice": {"GPUs do not match", Tell, but(fresh(), func(o *Observation) {
		o.Requester.GPUs, o.SPI.GPUs = 2, []string{"GPU-0", "GPU-0"}
	})},
	"two requesters with one GPU":                                     {"GPU claimed twice", Tell, but(fresh(), func(o *Observation) { o.Rivals = []string{"ns/other"} })},
	"one that waits for a node":                                       {"not running", Nothing, but(fresh(), func(o *Observation) { o.Node.Name, o.Requester.Running, o.SPI = "", false, nil })},
	"an engine that was killed while the requester program hangs":     {"died, not noted", NoteFailure, but(servedOne(), func(o *Observation) { o.SPI, o.Instance.State = nil, "failed" })},
	"a model that was put to sleep while the requester program hangs": {"not awake, shown", Retract, but(servedOne(), func(o *Observation) { o.SPI, o.Instance.State = nil, "sleeping" })},
	"two requesters with one GPU, one told of it already": {"GPU claimed twice", Nothing, but(fresh(), func(o *Observation) {
		o.Rivals = []string{"ns/other"}
		o.Requester.Told = "ns/other has one of its GPUs too, or says so: neither gets it until that is clear"
	})},
	"a node whose launcher the DaemonSet has not made yet": {"no launcher yet", Tell, but(fresh(), func(o *Observation) {
		o.Launcher, o.Lacking = nil, &dualpods.LauncherWait{Why: "DaemonSet vllm-launcher has no launcher on node node-0 yet"}
	})},
	"a node without a launcher": {"no launcher", CreateLauncher, but(fresh(), func(o *Observation) { o.Launcher = nil })},
	"a launcher whose image is being pulled": {"launcher starting", Tell, but(fresh(), func(o *Observation) {
		o.Launcher.Connected, o.Launcher.Waits = false, &dualpods.LauncherWait{Why: "launcher launcher-0 is starting"}
	})},
	"a launcher that is going":                             {"launcher going", Tell, but(fresh(), func(o *Observation) { o.Launcher.Deleting = true })},
	"a launcher that does not answer yet":                  {"launcher silent", Tell, but(fresh(), func(o *Observation) { o.Launcher.Connected = false })},
	"a launcher that fell silent under one that is served": {"launcher silent", Tell, but(servedOne(), func(o *Observation) { o.Launcher.Connected = false })},
	"a launcher that is being started again": {"launcher just lost", Retry, but(servedOne(), func(o *Observation) {
		o.Launcher.Connected, o.Launcher.Lost = false, now.Add(-time.Second)
	})},
	"a kubelet that has not been asked yet": {"kubelet just asked", Retry, but(fresh(), func(o *Observation) {
		o.Kubelet = &dualpods.Allocation{Why: "no socket", Since: now}
	})},
	"a kubelet that does not say who has what": {"kubelet silent", Tell, but(fresh(), func(o *Observation) {
		o.Kubelet = &dualpods.Allocation{Why: "no socket", Since: now.Add(-time.Minute)}
	})},
	"a requester program that names a GPU of somebody else's": {"GPUs not its own", Tell, but(fresh(), func(o *Observation) {
		o.Kubelet = &dualpods.Allocation{GPUs: []string{"GPU-1"}}
	})},
	"a requester program that names a GPU that nobody has": {"GPUs not its own", Tell, but(fresh(), func(o *Observation) {
		o.Kubelet, o.SPI.GPUs = &dualpods.Allocation{GPUs: []string{"GPU-0"}}, []string{"GPU-7"}
	})},
	"the kubelet gave it what it says, and all else is there": {"no record", AddRecord, but(fresh(), func(o *Observation) {
		o.Kubelet = &dualpods.Allocation{GPUs: []string{"GPU-0"}}
	})},
	"one that is bound, and a kubelet that fell silent": {"", Nothing, but(servedOne(), func(o *Observation) {
		o.Kubelet = &dualpods.Allocation{Why: "no socket"}
	})},
	"a GPU that the launcher does not see": {"GPU not the launcher's", Tell, but(fresh(), func(o *Observation) { o.SPI.GPUs = []string{"GPU-7"} })},
	"one that is looked at for the first time, while its container starts": {"no finalizer", AddFinalizer, but(fresh(), func(o *Observation) {
		o.Requester.Finalizer, o.Requester.Running, o.SPI = false, false, nil
	})},
	"one that is looked at for the first time, while its launcher does not answer": {"launcher silent", Tell, but(fresh(), func(o *Observation) {
		o.Requester.Finalizer, o.Launcher.Connected = false, false
	})},
	"its model is bound to one that leaves":                            {"instance bound to another", Tell, but(fresh(), func(o *Observation) { o.Holder = "ns/old" })},
	"nothing stands in the way":                                        {"no record", AddRecord, fresh()},
	"its model is to be waited for, and the launcher does not have it": {"model missing", Tell, but(fresh(), waits)},
	"the same, once it was told what it waits for": {"model missing", Nothing, but(fresh(), func(o *Observation) {
		waits(o)
		o.Requester.Told = "node node-0 is fetching its model and has 40 % of it; ClusterModelCache kept has who names the model wait (onMissing: Wait)"
	})},
	"the same, and an instance of it ended before": {"model missing", Tell, but(fresh(), func(o *Observation) { waits(o); o.Instance = &launcherapi.Instance{State: "failed"} })},
	"the same, and an instance of it sleeps":       {"no record", AddRecord, but(fresh(), func(o *Observation) { waits(o); o.Instance = &launcherapi.Instance{State: "sleeping"} })},
	"the same, and the launcher has it whole":      {"no record", AddRecord, but(fresh(), func(o *Observation) { waits(o); o.Copy.Whole = true })},
	"the same, and its launcher has no store":      {"model missing", Tell, but(fresh(), func(o *Observation) { waits(o); o.Copy.Why = "launcher launcher-0 has no model store" })},
	"the same, and its launcher has not said yet what models it has": {"models just lost", Retry, but(fresh(), func(o *Observation) {
		waits(o)
		o.Copy = Copy{Silent: now.Add(-time.Second), Why: "it has not answered yet"}
	})},
	"the same, and its launcher does not say what models it has": {"model missing", Tell, but(fresh(), func(o *Observation) {
		waits(o)
		o.Copy = Copy{Silent: now.Add(-Patience), Why: "not found"}
	})},
	"its model is not to be started without a copy":   {"no record", AddRecord, but(fresh(), func(o *Observation) { waits(o); o.Keeper.Waits = false })},
	"a model that went after its requester was bound": {"swap not asked", Swap, but(recorded(), waits)},
	"the engine was killed":                           {"not awake, ready", BecomeUnready, but(servedOne(), func(o *Observation) { o.Instance.State = "failed" })},
	"the engine was killed, and the requester program refused to become unready a moment ago": {"not awake, stays ready", Unbind, but(servedOne(), func(o *Observation) {
		o.Instance.State = "failed"
		refusedOf(o, BecomeUnready)
	})},
	"somebody put the model to sleep, and a requester program that stays ready is being unbound": {"not awake, stays ready", Nothing, but(servedOne(), func(o *Observation) {
		o.Instance.State, o.Requester.Shown, o.Calls.Unbind = "sleeping", false, true
		refusedOf(o, BecomeUnready)
	})},
	"the same, and it refused to unbind too": {"died, not noted", NoteFailure, but(servedOne(), func(o *Observation) {
		o.Instance.State = "failed"
		refusedOf(o, BecomeUnready, Unbind)
	})},
	"somebody put the model to sleep, and the requester program refused all": {"not awake, shown", Retract, but(servedOne(), func(o *Observation) {
		o.Instance.State = "sleeping"
		refusedOf(o, BecomeUnready, Unbind)
	})},
	"a ready one whose record is gone, and that refused to become unready": {"launcher gone, stays ready", Unbind, but(servedOne(), func(o *Observation) {
		o.Record = nil
		refusedOf(o, BecomeUnready)
	})},
	"the engine was killed, and the requester is unready": {"died, not noted", NoteFailure, but(servedOne(), func(o *Observation) {
		o.Instance.State, o.SPI.Proxy.Ready = "failed", false
	})},
	"the engine was killed, as another one's was before": {"died, not noted", NoteFailure, but(servedOne(), func(o *Observation) {
		o.Instance.State, o.SPI.Proxy.Ready = "failed", false
		o.Failures = &podmeta.Failures{RequesterUID: "another", Count: 1, Last: now}
	})},
	"the engine was killed, and that is noted": {"died while it served", DeleteRequester, but(servedOne(), func(o *Observation) {
		o.Instance.State, o.SPI.Proxy.Ready = "failed", false
		o.Failures = &podmeta.Failures{RequesterUID: "uid", Count: 1, Last: now}
	})},
	"the instance was deleted behind the controller's back": {"died while it served", DeleteRequester, but(servedOne(), func(o *Observation) { o.Instance, o.SPI.Proxy.Ready = nil, false })},
	"the instance was deleted, and the configuration had changed": {"died while it served", DeleteRequester, but(servedOne(), func(o *Observation) {
		o.Form.Args, o.Instance, o.SPI.Proxy.Ready = []string{"org/other"}, nil, false
	})},
	"a failed instance that is being deleted": {"leftover, being deleted", Nothing, but(with("failed"), func(o *Observation) { o.Calls.Delete = true })},
	"a changed configuration, and a launcher that has not answered the controller yet": {"launcher silent", Tell, but(servedOne(), func(o *Observation) {
		o.Form.Args, o.Instance, o.Attempt, o.Launcher.Connected = []string{"org/other"}, nil, Attempt{}, false
	})},
	"its model is awake, and was told to sleep a moment ago, when nobody was bound to it": {"told to rest", Nothing, but(with("awake"), func(o *Observation) { o.Calls.Sleep = true })},
	"its model is awake, and was to be deleted a moment ago, while it was not wanted": {"told to rest", Nothing, but(with("awake"), func(o *Observation) {
		o.Attempt, o.Calls.Delete = Attempt{Asked: true, Over: true}, true
	})},
	"a failed instance from earlier":  {"leftover", DeleteInstance, with("failed")},
	"somebody put the model to sleep": {"not awake, ready", BecomeUnready, but(servedOne(), func(o *Observation) { o.Instance.State = "sleeping" })},
	"the same, once it is unready": {"not awake, shown", Retract, but(servedOne(), func(o *Observation) {
		o.Instance.State, o.SPI.Proxy.Ready = "sleeping", false
	})},
	"the same, once its labels are off, and its gate is open": {"not awake, shown", Retract, but(servedOne(), func(o *Observation) {
		o.Instance.State = "sleeping"
		unserved(o)
		o.Requester.Gate, o.Requester.GateOpen = true, true
	})},
	"the same, once nothing shows it any more": {"not awake any more", NextAttempt, but(servedOne(), func(o *Observation) { o.Instance.State = "sleeping"; unserved(o) })},
	"the model died between the end of its swap and being ready": {"not awake any more", NextAttempt, but(recorded(), func(o *Observation) {
		o.Attempt = Attempt{Asked: true, Over: true}
	})},
	"an attempt that is to be made later": {"backing off", Tell, but(with("sleeping"), func(o *Observation) {
		o.Record.Attempt, o.Record.Failure, o.Record.RetryAt = 2, "boom", now.Add(time.Second)
	})},
	"a first attempt that is to be made later": {"backing off", Tell, but(recorded(), func(o *Observation) {
		o.Record.Failure, o.Record.RetryAt = "instance model-1 ended 2 times soon after it served; at last it is failed", now.Add(time.Second)
	})},
	"the configuration was deleted before anything was started": {"input wrong, nothing runs", Tell, but(recorded(), func(o *Observation) {
		o.Problems = []podmeta.Problem{{Field: "f", Message: "m"}}
	})},
	"a new record, and a swap of one that was deleted": {"earlier swap under way", Tell, but(recorded(), func(o *Observation) { o.Earlier = "ns/old" })},
	"one that names other GPUs, and a launcher that is silent": {"resting, launcher silent", Tell, but(recorded(), func(o *Observation) {
		o.SPI.GPUs, o.Launcher.Connected = []string{"GPU-1"}, false
	})},
	"a new record": {"swap not asked", Swap, recorded()},
	"a launcher that nobody has heard yet, which may have a model awake": {"neighbour not heard", Retry, but(recorded(), func(o *Observation) {
		o.Unheard = &Launcher{Name: "launcher-1", Lost: now.Add(-time.Second), Why: "it has not answered yet"}
	})},
	"a launcher that has not been heard for long": {"swap not asked", Swap, but(recorded(), func(o *Observation) {
		o.Unheard = &Launcher{Name: "launcher-1", Lost: now.Add(-Patience), Why: "connection refused"}
	})},
	"a GPU on which a launcher that was lost had a model":  {"neighbour just lost", Retry, but(recorded(), func(o *Observation) { o.Neighbours = unheard(time.Second, "awake") })},
	"a GPU on which a silent launcher had a model":         {"neighbour silent", Tell, but(recorded(), func(o *Observation) { o.Neighbours = unheard(time.Minute, "awake") })},
	"a GPU that a silent launcher has a left record of":    {"neighbour silent", Tell, but(recorded(), func(o *Observation) { o.Neighbours = unheard(time.Minute, "", recordedFor(false)) })},
	"a GPU that a silent launcher has a living record of":  {"swap not asked", Swap, but(recorded(), func(o *Observation) { o.Neighbours = unheard(time.Minute, "awake", recordedFor(true)) })},
	"a GPU on which a silent launcher's model slept":       {"swap not asked", Swap, but(recorded(), func(o *Observation) { o.Neighbours = unheard(time.Minute, "sleeping") })},
	"sleepers of a silent launcher are not evicted":        {"swap failed", NextAttempt, but(crowded(), func(o *Observation) { o.Neighbours = unheard(time.Minute, "sleeping") })},
	"a GPU on which another launcher's model falls asleep": {"awake elsewhere", Tell, but(recorded(), func(o *Observation) { o.Neighbours = beside("falling_asleep", 0) })},
	"a GPU on which another launcher's swap has put a model to sleep, and may wake it again": {"awake elsewhere", Tell, but(recorded(), func(o *Observation) {
		o.Neighbours = beside("sleeping", gib)
		o.Neighbours[0].SwapID = "swap-1"
	})},
	"a GPU on which another launcher's model sleeps": {"swap not asked", Swap, but(recorded(), func(o *Observation) { o.Neighbours = beside("sleeping", gib) })},
	"a GPU on which somebody woke another launcher's by hand": {"swap not asked", Swap, but(recorded(), func(o *Observation) {
		o.Neighbours = beside("awake", gib)
		o.Neighbours[0].Annotations = nil
	})},
	"sleepers of another launcher hold what is missing": {"room taken elsewhere", Evict, but(crowded(), func(o *Observation) { o.Neighbours = beside("sleeping", gib) })},
	"they are being deleted": {"room being made", Nothing, but(crowded(), func(o *Observation) {
		o.Neighbours, o.Attempt.Evicted = beside("sleeping", gib), []string{"uid-1/other-0"}
		o.Neighbours[0].Deleting = true
	})},
	"they are gone": {"room made", NextAttempt, but(crowded(), func(o *Observation) { o.Attempt.Evicted = []string{"uid-1/other-0"} })},
	"an earlier process may have had some deleted": {"room made", NextAttempt, but(crowded(), func(o *Observation) {
		o.Neighbours, o.Attempt.Earlier = beside("sleeping", gib), true
	})},
	"they did not go": {"swap failed", NextAttempt, but(crowded(), func(o *Observation) {
		o.Neighbours, o.Attempt.Evicted = beside("sleeping", gib), []string{"uid-1/other-0"}
	})},
	"sleepers of another launcher hold too little":                                            {"swap failed", NextAttempt, but(crowded(), func(o *Observation) { o.Neighbours = beside("sleeping", gib/4) })},
	"a model that somebody put to sleep falls asleep, after the controller was started again": {"moving", Nothing, with("falling_asleep")},
	"a new record, its model asleep":                                                          {"swap not asked", Swap, with("sleeping")},
	"a record whose instance was made before the controller came":                             {"swap not asked", Swap, but(with("sleeping"), func(o *Observation) { o.Record.New = true })},
	"a record whose instance has gone since":                                                  {"swap not asked", Swap, but(recorded(), func(o *Observation) { o.Record.New = false })},
	"a swap to make what turns out to be there":                                               {"attempt outdated", NextAttempt, but(with("sleeping"), refusedFor(true, launcherapi.CodeExists))},
	"a swap to wake what turns out to be gone":                                                {"attempt outdated", NextAttempt, but(recorded(), refusedFor(false, launcherapi.CodeNotFound))},
	"a swap to make something by a launcher that does not know how":                           {"swap failed", NextAttempt, but(recorded(), refusedFor(true, launcherapi.CodeNotFound))},
	"one whose input changed while its model was asleep":                                      {"resting, asleep or gone", RemoveRecord, but(with("sleeping"), func(o *Observation) { o.Form.Args, o.Calls.CallOff = []string{"org/other"}, true })},
	"a start that the controller does not remember":                                           {"moving", Nothing, with("starting")},
	"a swap that starts the model":                                                            {"swap under way", Nothing, but(with("starting"), func(o *Observation) { o.Attempt.Asked = true })},
	"a swap for one that lists the gate":                                                      {"not holding", Hold, but(with("starting"), holdsFor(""))},
	"a swap for one whose program holds already":                                              {"swap under way", Nothing, but(with("starting"), func(o *Observation) { holdsFor(o.Record.SwapKey())(o) })},
	"a swap for one whose program is of an earlier release":                                   {"swap under way", Nothing, but(with("starting"), func(o *Observation) { holdsFor("")(o); o.SPI.Proxy.CanHold = false })},
	"a swap for one that does not list the gate":                                              {"swap under way", Nothing, but(with("starting"), func(o *Observation) { holdsFor("")(o); o.Requester.Gate = false })},
	"a swap for one whose program refused to hold a moment ago":                               {"swap under way", Nothing, but(with("starting"), func(o *Observation) { holdsFor("")(o); refusedOf(o, Hold) })},
	"a swap for one whose program does not run yet":                                           {"swap under way", Nothing, but(ahead(with("starting")), func(o *Observation) { o.Requester.Gate, o.Attempt.Asked = true, true })},
	"one that is awake, its swap over, and that holds":                                        {"carries nothing", Bind, but(with("awake"), func(o *Observation) { holdsFor(o.Record.SwapKey())(o); o.Attempt.Over = true })},
	"one that holds for an earlier attempt":                                                   {"holds for nobody", EndHold, but(with("starting"), func(o *Observation) { holdsFor(o.Record.SwapKey())(o); o.Record.Attempt = 2 })},
	"one that holds, and whose record is gone":                                                {"holds for nobody", EndHold, but(fresh(), holdsFor("uid.1.1"))},
	"one that holds for nobody, and refused to end that":                                      {"no record", AddRecord, but(fresh(), func(o *Observation) { holdsFor("uid.1.1")(o); refusedOf(o, EndHold) })},
	"one that holds, and whose record is let go":                                              {"holds for nobody", EndHold, but(with("starting"), func(o *Observation) { holdsFor(o.Record.SwapKey())(o); o.Form.Args = []string{"org/other"} })},
	"a deleted one that holds":                                                                {"resting, starting or failed", DeleteInstance, but(with("starting"), func(o *Observation) { holdsFor(o.Record.SwapKey())(o); deleting(o) })},
	"a swap that opens the gate just now":                                                     {"swap under way", Nothing, but(with("awake"), func(o *Observation) { o.Attempt.Asked = true })},
	"a swap that came to nothing": {"swap failed", NextAttempt, but(recorded(), func(o *Observation) {
		o.Attempt = Attempt{Asked: true, Over: true, Failure: "out of memory"}
	})},
	"somebody wakes the model by hand":                    {"moving", Nothing, but(with("waking"), func(o *Observation) { o.Attempt = Attempt{Asked: true, Over: true} })},
	"an earlier binding's connections end":                {"being unbound", Nothing, but(with("awake"), func(o *Observation) { o.Calls.Unbind = true })},
	"the requester program carries for an earlier record": {"carries for another", Unbind, but(servedOne(), func(o *Observation) { o.Record.Since, o.Requester.Shown = now.Add(time.Second), false })},
	"the instance listens elsewhere than before":          {"carries for another", Unbind, but(servedOne(), func(o *Observation) { o.Record.Attempt, o.Instance.Port, o.Requester.Shown = 2, 40002, false })},
	"connections of an earlier attempt end, as a controller wanted that is gone": {"carries for another", Unbind, but(servedOne(), func(o *Observation) {
		o.SPI.Proxy.State, o.SPI.Proxy.Ready, o.Record.Attempt, o.Requester.Shown = requesterapi.StateDraining, false, 2, false
	})},
	"the model is awake again that was put to sleep by hand": {"not ready", BecomeReady, but(servedOne(), func(o *Observation) {
		o.SPI.Proxy.Ready, o.Record.Attempt, o.Requester.Published, o.Requester.Shown = false, 2, false, false
	})},
	"the model is awake":                           {"carries nothing", Bind, but(servedOne(), unserved)},
	"the model was awake when the controller came": {"carries nothing", Bind, with("awake")},
	"traffic is carried": {"not ready", BecomeReady, but(servedOne(), func(o *Observation) {
		o.SPI.Proxy.Ready, o.Requester.Published, o.Requester.Shown = false, false, false
	})},
	"the requester is ready": {"not published", Publish, but(servedOne(), func(o *Observation) { o.Requester.Published = false })},
	"the requester is ready and has a gate": {"gate shut", OpenGate, but(servedOne(), func(o *Observation) {
		o.Requester.Gate, o.Requester.Published, o.Requester.Shown = true, false, false
	})},
	"its gate is open": {"not published", Publish, but(servedOne(), func(o *Observation) {
		o.Requester.Gate, o.Requester.GateOpen, o.Requester.Published, o.Requester.Shown = true, true, false, false
	})},
	"all is done": {"", Nothing, servedOne()},
	"all is done, and the configuration is gone": {"", Nothing, but(servedOne(), func(o *Observation) { o.Problems = []podmeta.Problem{{Field: "f"}} })},
	"all is done, and the configuration changed": {"", Nothing, but(servedOne(), func(o *Observation) { o.Form.Args = []string{"org/other"} })},
	"the configuration changed while the launcher was silent": {"not published", Publish, but(servedOne(), func(o *Observation) {
		o.Form.Args, o.Requester.Published, o.Requester.Shown = []string{"org/other"}, false, false
	})},
	"all is done, and the node is cordoned": {"", Nothing, but(servedOne(), func(o *Observation) { o.Node.Unschedulable = true })},
}
