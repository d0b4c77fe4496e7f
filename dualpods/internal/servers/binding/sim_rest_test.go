package binding

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// stillFor is how long nothing happens after a script, before what is wrong is
// mended: time enough for people to be told. restFor is how much longer nothing
// happens than whatever is waited for: nobody may look again and again.
const (
	stillFor = 2 * time.Minute
	restFor  = 20 * time.Second
)

// simQuiet is what was so when nothing was to happen any more.
type simQuiet struct {
	passes, version int
	revisions       map[string]uint64
}

// calmDown is the end of a script: nothing more happens for long.
func (s *sim) calmDown() {
	s.note("--- nothing more happens")
	s.inc.killAt = 0
	s.after(stillFor-restFor-time.Minute, func() { s.killing.over = true }) // the next process has a minute
	s.after(stillFor-restFor, func() { s.quiet = simQuiet{s.passes, s.api.version, s.revisions()} })
}

func (s *sim) revisions() map[string]uint64 {
	all := map[string]uint64{}
	for key, l := range s.launchers {
		all[key] = l.rev
	}
	return all
}

// checkStill looks for what must not be where faults last: those who wait know
// why, and nobody asks again and again.
func (s *sim) checkStill() {
	s.note("--- is everybody told?")
	for _, name := range s.requesters() {
		if pod := s.api.pods[name]; s.living(pod.UID) != nil {
			s.checkOne(pod)
		}
	}
	s.checkDoomed()
	for _, r := range s.records() {
		abandoned := s.unreadable(r) && !slices.Contains(r.on.Finalizers, podmeta.FinalizerProvider) // somebody else keeps the Pod
		if l := s.launchers[string(r.on.UID)]; l != nil && l.ended && !abandoned && !s.stays(r.RequesterUID) {
			s.violated("the record of %s is still there, and the container of its launcher ended long ago", r.Name)
		}
	}
	const late = 1 // a look that was put off while something still happened
	if s.quiet.passes+late < s.passes && s.quiet.version == s.api.version && maps.Equal(s.quiet.revisions, s.revisions()) && !s.polled() {
		s.violated("the controller looks %d times in %v, and nothing has happened", s.passes-s.quiet.passes, restFor)
	}
}

// polled says that there is something of which nobody tells when it changes.
func (s *sim) polled() bool {
	if slices.ContainsFunc(sortedKeys(s.api.pods), func(name string) bool { return isForged(s.api.pods[name]) }) {
		return true
	}
	for _, name := range s.requesters() {
		if p := s.programs[s.api.pods[name].UID]; p != nil && !p.dead && (p.hung || p.odd != "" || p.mute != "" || s.kubelets[p.node] != kubeletAnswers || !p.up && running(s.api.pods[name])) {
			return true
		}
	}
	return slices.ContainsFunc(s.records(), func(r simRecord) bool { return time.Since(r.RetryAt) < restFor })
}

// checkOne looks at a living requester after a long time in which nothing has
// happened: it is served and shown so, or it says what is in its way.
func (s *sim) checkOne(pod *corev1.Pod) {
	if !podmeta.IsRequester(pod) {
		return // it lost its input, and then its finalizer with an uninstallation
	}
	status, p := podmeta.ReadStatus(pod), s.programs[pod.UID]
	at := s.recordOf(pod.UID)
	blind := p != nil && p.hung
	if at >= 0 {
		l := s.launchers[string(s.records()[at].on.UID)]
		blind = blind || l == nil || !l.reachable()
	}
	s.checkSeat(pod, at, blind || p != nil && p.odd != "")
	if p != nil && p.proxy.Ready && at >= 0 {
		label, current := s.labelOf(pod, s.records()[at])
		labelled := !current || pod.Labels["model"] == label // labels of an earlier edition are not known any more
		_, i := p.target()
		switch {
		case blind:
		case p.odd == oddStays && strings.Contains(status.Message, p.odd):
		case !awake(i) || s.records()[at].Instance != i.InstanceID:
			s.violated("at rest: requester %s is ready without its instance", pod.Name)
		case !simServes(pod) || status.State == decide.StateWaiting || !labelled:
			s.violated("at rest: requester %s is served, and its status and labels do not say so: %s", pod.Name, pod.Annotations[podmeta.AnnotationStatus])
		case len(pod.Spec.ReadinessGates) > 0 && !podmeta.GateOpen(pod):
			s.violated("at rest: requester %s is served, and its gate is shut", pod.Name)
		}
		return
	}
	if !blind && (simServes(pod) || pod.Labels["model"] != "") && (at < 0 || !simEarly(pod, s.records()[at])) {
		s.violated("at rest: requester %s is not served, and is shown as one that is: %s", pod.Name, pod.Annotations[podmeta.AnnotationStatus])
	}
	reasons, none := s.reasons(pod, p, at, blind)
	switch {
	case none:
	case len(reasons) == 0:
		s.violated("at rest: requester %s is not served, and nothing is in its way: %s", pod.Name, pod.Annotations[podmeta.AnnotationStatus])
	case status.State != decide.StateWaiting && (!blind || !simServes(pod)) || !slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(status.Message, r) }):
		s.violated("at rest: requester %s is not told %q: %s", pod.Name, reasons, pod.Annotations[podmeta.AnnotationStatus])
	}
}

// simEarly says that the readiness gate of a requester alone says that it serves, and may say so
// before its program runs.
func simEarly(pod *corev1.Pod, r simRecord) bool {
	return simMayBeEarly(pod, r) && podmeta.ReadStatus(pod).State != decide.StateServing && pod.Labels["model"] == ""
}

// simMayBeEarly says that a requester is bound, and that its program has not run yet.
func simMayBeEarly(pod *corev1.Pod, r simRecord) bool {
	return r.Ahead && !running(pod) && !podmeta.ProgramOf(pod).Ended()
}

// hasReason says that a controller has a reason to keep the gate of a requester shut whose program
// has not run.
func (inc *incarnation) hasReason(pod *corev1.Pod, r simRecord) bool {
	n, l := inc.kept(pod.Spec.NodeName), &launcherPod{pod: r.on}
	_, stuck := podmeta.Waits(pod)
	return stuck || inc.s.unreadable(r) || n.calls.underWay(sleepKey(l, r.Instance), 0) || n.calls.underWay(deleteKey(l, r.Instance), 0) ||
		n.repeats.of(pod.UID)[decide.OpenGate].Times > 20
}

// labelOf is the label that a requester asks for; current says that its record is of what it asks
// for now.
func (s *sim) labelOf(pod *corev1.Pod, r simRecord) (label string, current bool) {
	wanted, problems := s.asks(pod)
	wanted, lacks := wanted.On(&r.on.Spec)
	elsewhere := wanted.LauncherConfig != "" && wanted.LauncherConfig != r.on.Labels[podmeta.LabelLauncherConfig]
	return wanted.Labels["model"], len(problems)+len(lacks) == 0 && !elsewhere && wanted.Hash() == r.SpecHash
}

// reasons are words of each thing that is in a requester's way; none says that
// it does not need to be told.
func (s *sim) reasons(pod *corev1.Pod, p *simProgram, at int, blind bool) (reasons []string, none bool) {
	wanted, problems := s.asks(pod)
	switch {
	case len(problems) > 0 && at < 0:
		return []string{problems[0].Message}, false
	case len(problems) > 0:
		reasons = append(reasons, problems[0].Message)
	}
	if pod.Spec.NodeName == "" {
		return nil, true // the scheduler says why
	}
	if at < 0 && s.api.nodes[pod.Spec.NodeName].Spec.Unschedulable {
		s.violated("requester %s is still there, and its node was closed before it had its server", pod.Name)
	}
	if _, stuck := podmeta.Waits(pod); stuck {
		return append(reasons, "waits in its container"), false
	}
	if !running(pod) || !p.up {
		return nil, true // it may run soon
	}
	if p.hung {
		reasons = append(reasons, "does not answer")
	}
	if p.odd == oddStays || p.odd == oddBind {
		reasons = append(reasons, p.odd)
	}
	if at < 0 || s.unreadable(s.records()[at]) { // one that cannot be read may be anybody's
		reasons = append(reasons, s.wrongGPUs(pod, p)...)
	}
	if at < 0 && !s.selects(pod.Spec.NodeName) {
		return append(reasons, "gets no launcher"), false
	}
	launcherPod := s.launcherFor(pod.Spec.NodeName, wanted)
	if at >= 0 {
		launcherPod = s.records()[at].on
	}
	if launcherPod == nil && wanted.LauncherConfig == "" { // one is made
		return reasons, false
	}
	if launcherPod == nil {
		return append(reasons, "launcher"), false
	}
	l := s.launchers[string(launcherPod.UID)]
	switch {
	case launcherPod.DeletionTimestamp != nil:
		reasons = append(reasons, "is being deleted or has ended")
	case l != nil && l.ended:
		reasons = append(reasons, "waits in its container")
	case l == nil:
		reasons = append(reasons, "is starting")
	case !l.reachable():
		reasons = append(reasons, "does not answer")
	}
	if at < 0 && podmeta.IsSeat(pod) && podmeta.ReadAssignment(pod).ID() == "" {
		return append(reasons, decide.SeatHasNoModel), false
	}
	if at >= 0 && s.records()[at].Failure != "" && !s.healed {
		reasons = append(reasons, s.failure(s.records()[at]))
	}
	if l != nil {
		for _, r := range s.records() {
			if r.on.Name == l.pod && r.RequesterUID != pod.UID && r.Instance == form.InstanceID(wanted, p.said()) {
				reasons = append(reasons, "still bound to")
			}
		}
	}
	if l != nil && at < 0 && s.waitsForModel(l, wanted.Args, form.InstanceID(wanted, p.said())) {
		reasons = append(reasons, "onMissing: Wait")
	}
	if at >= 0 && s.records()[at].Ahead && s.asksKubelet && s.kubelets[pod.Spec.NodeName] != kubeletAnswers {
		reasons = append(reasons, "cannot be told")
	}
	if at >= 0 && s.records()[at].Ahead && p.mute != "" {
		reasons = append(reasons, p.mute)
	}
	if at >= 0 && s.swapsBeside(s.records()[at]) {
		reasons = append(reasons, "is under way", "may be awake on its GPU")
	}
	if at >= 0 && slices.ContainsFunc(s.records(), func(r simRecord) bool {
		return r.RequesterUID != pod.UID && s.living(r.RequesterUID) != nil && overlap(r.GPUs, s.records()[at].GPUs)
	}) {
		reasons = append(reasons, "has one of its GPUs too")
	}
	if at >= 0 && s.silentBeside(s.records()[at]) {
		reasons = append(reasons, "may be awake on its GPU")
	}
	if at >= 0 && l != nil && slices.ContainsFunc(s.records()[at].GPUs, func(g string) bool {
		return slices.ContainsFunc(l.beside(g), func(i simNeighbour) bool { return occupies(i.simInstance) })
	}) {
		reasons = append(reasons, "on its GPU, and has to")
	}
	return reasons, s.swapping(pod.UID)
}

// swapsBeside says that a swap for another record may be under way on a GPU of
// this one: a launcher that does not answer does not say how it ended.
func (s *sim) swapsBeside(record simRecord) bool {
	return slices.ContainsFunc(s.records(), func(r simRecord) bool {
		beside := r.RequesterUID != record.RequesterUID && slices.ContainsFunc(r.GPUs, func(g string) bool { return slices.Contains(record.GPUs, g) })
		l := s.launchers[string(r.on.UID)]
		return beside && (l == nil || !l.reachable() || s.swapping(r.RequesterUID))
	})
}

// silentBeside says that a launcher that does not answer may have a model awake on
// a GPU of that record, or had told of one that was not at rest.
func (s *sim) silentBeside(record simRecord) bool {
	on := s.launchers[string(record.on.UID)]
	for _, l := range s.launchers {
		if on == nil || l == on || l.node != on.node || l.dead || l.reachable() {
			continue
		}
		if len(l.on(record.GPUs)) > 0 {
			return true
		}
		if v := s.viewOf(l); v != nil {
			for _, i := range v.Instances {
				if overlap(i.GPUUUIDs, record.GPUs) {
					return true
				}
			}
		}
	}
	return false
}

// swapping says that a swap for a requester is under way.
func (s *sim) swapping(uid types.UID) bool {
	for _, l := range s.launchers {
		for _, sw := range l.swaps {
			if !sw.ended && !l.dead && strings.HasPrefix(sw.record, string(uid)+".") {
				return true
			}
		}
	}
	return false
}

// failure is how the last swap of a record came to nothing; of one that did not,
// what became of its instance.
func (s *sim) failure(r simRecord) string {
	words, at := r.Failure, time.Time{}
	for _, sw := range s.launchers[string(r.on.UID)].swaps {
		if sw.record+"." == strings.TrimRight(r.SwapKey(), "0123456789") && sw.ended && sw.at.After(at) {
			if at = sw.at; sw.err != nil {
				words = sw.err.Error()
			}
		}
	}
	return words
}

// asks is what a requester asks for.
func (s *sim) asks(pod *corev1.Pod) (form.Form, []podmeta.Problem) {
	read, problems := podmeta.ReadRequester(pod)
	config := s.api.configs[read.ConfigName]
	switch {
	case len(problems) > 0:
		return form.Form{}, problems
	case read.Input == podmeta.InputPatch:
		return form.FromPatch(pod, read.Patch)
	case read.Input == podmeta.InputNone: // a seat without a model
		return form.Form{GPUs: read.GPUs}, nil
	case config == nil:
		return form.Form{}, []podmeta.Problem{{Message: "there is no InferenceServerConfig " + read.ConfigName}}
	}
	return form.FromConfig(pod, config)
}

// said are the GPUs that a program names.
func (p *simProgram) said() []string {
	switch {
	case p.mute != "":
		return nil
	case p.lie != nil:
		return p.lie
	}
	return p.gpus
}

// wrongGPUs says what is wrong with the GPUs that a program names.
func (s *sim) wrongGPUs(pod *corev1.Pod, p *simProgram) []string {
	want := gpusAsked(pod)
	switch {
	case p.mute != "":
		return []string{p.mute}
	case len(p.said()) != want:
		return []string{"asks for"}
	case s.asksKubelet && s.kubelets[p.node] != kubeletAnswers && (p.placed.After(s.kubeletsBy[p.node]) || s.inc.born.After(s.kubeletsBy[p.node])):
		return []string{"cannot be told", "has one of its GPUs too"}
	case s.asksKubelet && (s.kubelets[p.node] != kubeletAnswers || !slices.ContainsFunc(s.livingLaunchers(), func(l *simLauncher) bool { return l.node == p.node })): // what it said before counts
		return []string{"cannot be told", "the kubelet gave its container", "has one of its GPUs too"}
	case s.asksKubelet && s.movedAway(p.said()):
		return []string{"has one of its GPUs too"}
	case s.asksKubelet && p.lie != nil && !decide.SameSet(p.lie, p.gpus):
		return []string{"the kubelet gave its container", "has one of its GPUs too"}
	case s.asksKubelet:
		return nil
	case slices.ContainsFunc(p.said(), func(g string) bool { return !slices.Contains(nodeGPUs(p.node), g) }):
		return []string{"does not see GPU", "has one of its GPUs too"} // two may name one that nobody has
	}
	for _, name := range s.requesters() {
		other := s.programs[s.api.pods[name].UID]
		if other == nil || other == p || s.living(other.uid) == nil {
			continue
		}
		held := other.said()
		for _, r := range s.records() {
			if r.RequesterUID == other.uid {
				held = slices.Concat(held, r.GPUs)
			}
		}
		if overlap(held, p.said()) {
			return []string{"has one of its GPUs too"}
		}
	}
	return nil
}

// simPass is what was so before a pass.
type simPass struct {
	faults   int
	views    map[string]simView
	programs map[types.UID]string // process, of those that answer
	versions map[string]int       // of Pods as they were changed last, but by what the controller knows it has written
	known    map[string]bool      // Pods that the cache has so
}

func (inc *incarnation) snapshot(node string) simPass {
	s := inc.s
	before := simPass{faults: inc.faults, views: map[string]simView{}, programs: map[types.UID]string{}, versions: maps.Clone(s.api.others), known: map[string]bool{}}
	for key, v := range inc.views {
		before.views[key] = *v
	}
	n := inc.kept(node)
	for uid, p := range s.programs {
		hangs := p.hung
		if n != nil && !hangs {
			_, hangs = n.hangs(uid)
		}
		if p.node == node && p.up && !hangs {
			before.programs[uid] = p.proxy.Instance
		}
	}
	for name, pod := range s.api.pods {
		cached := inc.cache.pods[name]
		before.known[name] = cached != nil && cached.UID == pod.UID && !older(cached.ResourceVersion, strconv.Itoa(s.api.others[name]))
	}
	for name := range inc.cache.pods { // what is gone, and not known to be
		before.known[name] = before.known[name] && s.api.pods[name] != nil
	}
	return before
}

// recordOf is the index of a requester's record; where somebody has damaged one,
// and the controller has written another, that of the other.
func (s *sim) recordOf(uid types.UID) int {
	found := -1
	for at, r := range s.records() {
		if r.RequesterUID == uid && (found < 0 || !s.unreadable(r)) {
			found = at
		}
	}
	return found
}

// mayServe says that a pass knew of an instance that is awake on a launcher of the
// node, and whose record cannot be read: that may be anybody's.
func (s *sim) mayServe(node string, before simPass) bool {
	return slices.ContainsFunc(s.records(), func(r simRecord) bool {
		return r.on.Spec.NodeName == node && s.unreadable(r) && before.views[string(r.on.UID)].Instances[r.Instance].State == "awake"
	})
}

// checkPass looks at what a pass leaves behind in which nothing failed, and
// during which nobody else changed what it is about: what a requester shows is
// so, as far as the controller knows.
func (inc *incarnation) checkPass(node string, before simPass) {
	s := inc.s
	if inc.dead || inc.faults != before.faults {
		return
	}
	settled := func(name string) bool { return before.known[name] && before.versions[name] == s.api.others[name] }
	for name, known := range before.known {
		if pod := s.api.pods[name]; pod == nil || !known && simIsLauncher(pod) {
			return // launchers that come and go
		}
	}
	for _, name := range s.requesters() {
		pod := s.api.pods[name]
		p := s.programs[pod.UID]
		if pod.Spec.NodeName != node || s.living(pod.UID) == nil || !settled(name) || p == nil {
			continue
		}
		shown := simServes(pod) || pod.Labels["model"] != ""
		answers := before.programs[pod.UID] != "" && before.programs[pod.UID] == p.proxy.Instance && !p.hung
		at := s.recordOf(pod.UID)
		if answers && p.odd == "" {
			s.checkHold(inc.kept(node), before, p, at)
		}
		if at < 0 {
			if shown && !s.mayServe(node, before) {
				s.violated("requester %s is shown as served, and nobody is bound to it", name)
			}
			continue
		}
		r := s.records()[at]
		bound := p.proxy.State == requesterapi.StateBound
		if inc.kept(node).calls.attempt(logKey(pod.UID, &r.Binding), 0).Asked {
			continue // it is deleted as soon as it has its log
		}
		if shown && settled(r.on.Name) && (answers && !bound || !running(pod) && !simEarly(pod, r)) {
			s.violated("requester %s is shown as served, and carries no traffic", name)
		}
		v, now := before.views[string(r.on.UID)], inc.views[string(r.on.UID)]
		if settled(r.on.Name) && now != nil && !v.Connected && !now.Connected && podmeta.GateOpen(pod) && simMayBeEarly(pod, r) {
			s.violated("requester %s has an open gate before its program runs, and its launcher does not answer", name)
		}
		if !settled(r.on.Name) || now == nil || !v.Connected || v.stream != now.stream || !now.Connected || v.Revision != now.Revision {
			continue
		}
		if s.unreadable(r) && (podmeta.Ending(pod) || p.proxy.Terminating) { // no controller knows the instance of a requester that leaves and whose record cannot be read
			if shown && !s.mayServe(node, before) {
				s.violated("requester %s is shown as served, and leaves, and no instance may serve it", name)
			}
			continue
		}
		i := now.Instances[r.Instance]
		wakes := i.State == "awake" // while its swap goes on, it may still be undone
		switch {
		case wakes && i.SwapID == "" && simMayBeEarly(pod, r) && len(pod.Spec.ReadinessGates) > 0 && !podmeta.GateOpen(pod) && time.Since(now.told[r.Instance]) > justNow && !inc.hasReason(pod, r):
			s.violated("requester %s has a model that is awake, and its gate is shut until its program runs", name)
		case shown && !wakes:
			s.violated("requester %s is shown as served, and its instance is not awake", name)
		case answers && p.odd != oddStays && bound && p.proxy.Ready && !wakes && !inc.kept(node).calls.underWay(unbindKey(pod.UID), 0):
			s.violated("requester %s is ready, and its instance is known not to be awake", name)
		}
	}
}
