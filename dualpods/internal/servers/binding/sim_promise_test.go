package binding

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// What must hold of each single write and call of a controller process. Where
// the world may have changed while the call was on its way, what the process
// knew counts.

// knows is what the process has heard of an instance.
func (inc *incarnation) knows(l *simLauncher, id string) (state launcher.State, connected bool) {
	v := inc.views[l.key]
	if v == nil {
		return "", false
	}
	return launcher.State(v.Instances[id].State), v.Connected || time.Since(v.Lost) < justNow
}

// viewOf is what the process that runs has heard of a launcher.
func (s *sim) viewOf(l *simLauncher) *simView {
	if l == nil {
		return nil
	}
	return s.inc.views[l.key]
}

// justNow is how long a pass that has seen something may take to act on it.
const justNow = 50 * time.Millisecond

// wrote looks at a write of a controller to a Pod.
func (s *sim) wrote(inc *incarnation, old, pod *corev1.Pod) {
	same := pod.DeepCopy()
	same.ResourceVersion = old.ResourceVersion
	if apiequality.Semantic.DeepEqual(old, same) && !s.api.unheard[old.ResourceVersion] {
		s.violated("a write to %s changes nothing", pod.Name)
	}
	if isSimStranger(old) {
		s.strangerWritten(old)
		return
	}
	if !simIsLauncher(old) {
		s.told(inc, pod, podmeta.ReadStatus(old), podmeta.ReadStatus(pod))
		s.labelled(pod)
		s.notesService(old, pod)
		s.letGo(old, pod)
		return
	}
	before, _ := podmeta.ReadBindings(old)
	after, _ := podmeta.ReadBindings(pod)
	l := s.launchers[string(pod.UID)]
	if l == nil {
		s.violated("a write to launcher Pod %s, which has never run", pod.Name)
		return
	}
	if cached := inc.cache.pods[pod.Name]; cached != nil && cached.DeletionTimestamp != nil && len(after) > len(before) {
		s.violated("a record is put on launcher Pod %s, which is being deleted", pod.Name)
	}
	for _, b := range before {
		at := slices.IndexFunc(after, func(a podmeta.Binding) bool { return a.Instance == b.Instance })
		switch {
		case at < 0 || after[at].RequesterUID != b.RequesterUID:
			s.released(inc, l, b)
		case after[at].Attempt != b.Attempt:
			s.nextAttempt(inc, l, b, after[at])
		}
	}
	for _, a := range after {
		if !slices.ContainsFunc(before, func(b podmeta.Binding) bool { return b.Instance == a.Instance && b.RequesterUID == a.RequesterUID }) {
			s.recorded(l, a)
			s.bindsOn(inc, pod)
		}
	}
}

// letGo looks at a requester that may lose our finalizer: nobody is to use one
// that stays, and that the controller has done with.
func (s *sim) letGo(old, pod *corev1.Pod) {
	ours := func(p *corev1.Pod) bool { return slices.Contains(p.Finalizers, podmeta.FinalizerRequester) }
	if ours(old) && !ours(pod) && pod.DeletionTimestamp == nil && simServes(pod) {
		s.violated("requester %s is let go of, and tells others to use it", pod.Name)
	}
}

// simServes says that the status of a requester, or its gate, says that it serves.
func simServes(pod *corev1.Pod) bool {
	return podmeta.ReadStatus(pod).State == decide.StateServing || podmeta.GateOpen(pod)
}

// labelled looks at a requester's labels: whoever selects by them finds none whose
// gate is shut.
func (s *sim) labelled(pod *corev1.Pod) {
	if len(pod.Spec.ReadinessGates) > 0 && pod.Labels["model"] != "" && !podmeta.GateOpen(pod) {
		s.violated("requester %s has its labels, and its gate is shut", pod.Name)
	}
}

// heard says that the process that runs has known for a moment that the instance
// that a requester is bound to is not awake.
func (s *sim) heard(uid types.UID) bool {
	for _, r := range s.records() {
		if r.RequesterUID != uid {
			continue
		}
		if on := s.inc.cache.pods[r.on.Name]; on != nil && (podmeta.Finished(on) || podmeta.ServerEnded(on)) {
			limit := justNow
			for _, p := range s.programs {
				if p.hung && p.node == r.on.Spec.NodeName {
					limit += passLimit // the pass may have begun before, and waited for its answer
				}
			}
			return time.Since(s.inc.cache.heard[r.on.Name]) > limit
		}
		v := s.viewOf(s.launchers[string(r.on.UID)])
		return v != nil && v.Connected && v.Instances[r.Instance].State != string(launcher.Awake) && time.Since(v.since) > justNow && time.Since(v.told[r.Instance]) > justNow
	}
	since, noted := s.unrecorded[uid]
	return noted && time.Since(since) > longestLag+passLimit+justNow
}

// deletes looks at a requester that a controller deletes: it is unready where
// nobody serves it any more, and whoever has its instance next is to know that it
// ended.
func (s *sim) deletes(inc *incarnation, pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil {
		return // it was deleted before
	}
	p := s.programs[pod.UID]
	calls := inc.kept(p.node).calls
	inVain := calls.trouble(troubleKey(decide.BecomeUnready, pod.UID)).Count > 0
	unbound := p.proxy.State != requesterapi.StateBound || calls.underWay(unbindKey(pod.UID), 0) || calls.trouble(troubleKey(decide.Unbind, pod.UID)).Count > 0
	if p.odd == oddUnready && inVain && !unbound && !inc.silent(p) && !p.hung {
		s.violated("requester %s is deleted since nobody serves it, stays ready, and is not unbound", pod.Name)
	}
	if since, stale := s.stale[pod.Name]; stale && !inc.silent(p) && !p.hung && !inVain && s.heard(pod.UID) && p.odd == "" && time.Since(since) > justNow {
		s.violated("requester %s is deleted since nobody serves it, and is ready", pod.Name)
	}
	for _, r := range s.records() {
		l := s.launchers[string(r.on.UID)]
		if s.unreadable(r) && r.RequesterUID == pod.UID && awake(l.all[r.Instance]) && p.proxy.State == requesterapi.StateBound && !l.dead && r.on.DeletionTimestamp == nil {
			s.violated("requester %s is deleted while it serves, since somebody damaged its record", pod.Name)
		}
	}
	for _, r := range s.records() {
		if r.RequesterUID != pod.UID || r.on.DeletionTimestamp != nil || !simServes(pod) {
			continue
		}
		l := s.launchers[string(r.on.UID)]
		if simMayBeEarly(pod, r) && !l.dead && !podmeta.Finished(r.on) {
			s.violated("requester %s is deleted since nobody serves it, and its program has never run", pod.Name)
		}
		if state, connected := inc.knows(l, r.Instance); !connected || state != launcher.Failed || l.dead || podmeta.Finished(r.on) {
			continue
		}
		if f := podmeta.ReadFailures(r.on, r.Instance); f == nil || f.RequesterUID != pod.UID {
			s.violated("requester %s is deleted since %s ended, and its launcher Pod does not tell", pod.Name, r.Instance)
		}
	}
}

// nextAttempt looks at a record that asks for another swap than before.
func (s *sim) nextAttempt(inc *incarnation, l *simLauncher, before, after podmeta.Binding) {
	if sw := l.swaps[before.SwapKey()]; sw != nil && !sw.ended {
		s.violated("attempt %d of %s is given up while its swap is under way", before.Attempt, before.Name)
	}
	if strings.HasSuffix(after.Failure, "not found") || strings.HasSuffix(after.Failure, "already exists") {
		s.violated("%s is told of a failure that is none: %s", before.Name, after.Failure)
	}
	if s.restartsInPlace(before.RequesterUID) && after.Failures == 0 {
		if time.Until(after.RetryAt) > decide.LongestPause {
			s.violated("the instance of %s is started again in %v", before.Name, time.Until(after.RetryAt))
		}
		return
	}
	if !after.RetryAt.Equal(before.RetryAt) {
		if p := s.programs[before.RequesterUID]; p != nil && !p.ran() && after.Failures <= before.Failures {
			s.violated("the failures of %s count anew, which has served nobody", before.Name)
		}
		s.putOff(inc, l, before)
		s.failures[before.RequesterUID]++
		if n := s.failures[before.RequesterUID]; time.Until(after.RetryAt) > decide.PauseAfter(decide.FirstPause, n) {
			s.violated("attempt %d of %s is put off for %v, after it failed %d times since it was served", after.Attempt, before.Name, time.Until(after.RetryAt), n)
		}
	}
}

// notesService notes that a requester begins to be served, or that it was for
// some time, after the attempt that brought it there was to be made.
func (s *sim) notesService(old, pod *corev1.Pod) {
	was, is := simServes(old), simServes(pod)
	switch {
	case is && !was:
		s.serves[pod.UID] = time.Now()
	case was && !is && podmeta.Gate(pod) != nil && podmeta.Gate(pod).Reason == string(decide.NotAwake): // it has not served
	case was && !is:
		began := s.serves[pod.UID]
		for _, r := range s.records() {
			if r.RequesterUID == pod.UID && r.RetryAt.After(began) {
				began = r.RetryAt
			}
		}
		if time.Since(began) > 2*time.Second {
			s.failures[pod.UID] = 0
		}
	}
}

// recorded looks at a record that is new.
func (s *sim) recorded(l *simLauncher, b podmeta.Binding) {
	pod := s.api.pods[b.Name]
	if pod == nil || pod.UID != b.RequesterUID {
		return // it has gone meanwhile
	}
	f := podmeta.ReadFailures(s.api.pods[l.pod], b.Instance)
	if f != nil && f.Count > 1 && time.Since(f.Last) < decide.SecondStart/2 && b.RetryAt.Before(f.Last.Add(decide.SecondStart)) {
		s.violated("requester %s is to have %s at once, which ended %d times", b.Name, b.Instance, f.Count)
	}
	s.failures[b.RequesterUID] = 0
	s.recordedWithout(l, b, pod)
	if n := gpusAsked(pod); n != len(b.GPUs) {
		s.violated("requester %s asks for %d GPUs and is bound on %d", b.Name, n, len(b.GPUs))
	}
	if p := s.programs[b.RequesterUID]; s.asksKubelet && !decide.SameSet(p.gpus, b.GPUs) && !p.hadBefore(b.GPUs) {
		s.violated("requester %s is bound on %v, and the kubelet gave it %v", b.Name, b.GPUs, p.gpus)
	}
	for _, gpu := range b.GPUs {
		if !slices.Contains(l.gpus, gpu) {
			s.violated("requester %s is bound on %s, which its launcher does not have", b.Name, gpu)
		}
	}
}

// released looks at a record that is removed: its instance sleeps or is gone,
// and nothing is on its way to wake it.
func (s *sim) released(inc *incarnation, l *simLauncher, b podmeta.Binding) {
	s.unbound[l.key+"/"+b.Instance] = time.Now()
	if l.dead || s.api.nodes[l.node] == nil {
		return
	}
	known, connected := inc.knows(l, b.Instance)
	if !connected {
		s.violated("the record of %s is removed, and its launcher is silent", b.Name)
	}
	rests := func(state launcher.State) bool { return state == "" || state == launcher.Sleeping }
	is := launcher.State("")
	if i := l.all[b.Instance]; i != nil && (i.State != string(launcher.Stopping) || !i.up.IsZero()) { // a sleeper may be being evicted
		is = launcher.State(i.State)
		if time.Since(i.since) < justNow {
			is = "" // the write was on its way before: of a swap of an earlier process that had begun
		}
	}
	if !rests(is) && !rests(known) {
		s.violated("the record of %s is removed while its instance is %s", b.Name, is)
	}
	if sw := l.swaps[b.SwapKey()]; sw != nil && !sw.ended && sw.by == inc {
		s.violated("the record of %s is removed while its swap is under way", b.Name)
	}
	if sw := l.swaps[b.SwapKey()]; sw != nil && !sw.ended && !sw.begun && !sw.off { // whoever asked for it
		s.violated("the record of %s is removed while its swap waits for its turn", b.Name)
	}
}

// told looks at a status that is written.
func (s *sim) told(inc *incarnation, pod *corev1.Pod, old, now podmeta.Status) {
	if now.Message == old.Message {
		return
	}
	if now.Reason == string(decide.ModelMissing) {
		s.toldMissing(inc, pod)
	}
	if p := s.programs[pod.UID]; strings.Contains(now.Message, "cannot be told") && max(s.kubeletsBy[p.node].Unix(), p.placed.Unix(), inc.born.Unix()) > time.Now().Unix()-5 {
		s.violated("%s is told that the kubelet does not say what it has, and it was asked a moment ago", pod.Name)
	}
	if !strings.Contains(now.Message, "does not answer") {
		return
	}
	for _, name := range sortedKeys(s.api.pods) {
		known := inc.cache.pods[name] != nil && !running(inc.cache.pods[name]) && time.Since(inc.cache.heard[name]) > justNow
		if simIsLauncher(s.api.pods[name]) && !running(s.api.pods[name]) && known && strings.Contains(now.Message, name+" ") {
			s.violated("%s is told that launcher %s does not answer, and that does not run", pod.Name, name)
		}
	}
	for _, key := range sortedKeys(inc.views) {
		l, v := s.launchers[key], inc.views[key]
		if l == nil || !strings.Contains(now.Message, l.pod+" ") {
			continue
		}
		if v.Connected && time.Since(v.since) > justNow || !v.Connected && time.Since(v.Lost) < 5*time.Second {
			s.violated("%s is told that launcher %s does not answer, and it did a moment ago", pod.Name, l.pod)
		}
	}
}

// step looks at a step that a controller is about to take: what is being done
// is not done again, and it has one swap under way on a GPU.
func (s *sim) step(inc *incarnation, node string, uid types.UID, do decide.Action) {
	key := ""
	var gpus []string
	for _, r := range s.records() {
		l := &launcherPod{pod: r.on}
		if r.RequesterUID == uid {
			gpus = r.GPUs
			key = map[decide.Action]string{decide.Swap: swapKey(l, &r.Binding), decide.Sleep: sleepKey(l, r.Instance), decide.DeleteInstance: deleteKey(l, r.Instance)}[do]
		}
	}
	if do == decide.Unbind {
		key = unbindKey(uid)
	}
	calls := inc.kept(node).calls
	calls.mu.Lock()
	defer calls.mu.Unlock()
	underWay := func(key string) bool { c := calls.all[key]; return c != nil && !c.over }
	if underWay(key) {
		s.violated("the controller is to %s for %s, and does so already", do, uid)
	}
	for _, r := range s.records() {
		if do == decide.Swap && r.RequesterUID != uid && underWay(swapKey(&launcherPod{pod: r.on}, &r.Binding)) && slices.ContainsFunc(r.GPUs, func(gpu string) bool { return slices.Contains(gpus, gpu) }) {
			s.violated("a swap is to be asked for for %s, and one for %s is under way on its GPU", uid, r.Name)
		}
	}
}

// callsLauncher looks at a call that a controller begins.
func (s *sim) callsLauncher(inc *incarnation, l *simLauncher) {
	if v := inc.views[l.key]; v == nil || !v.Connected && time.Since(v.Lost) > justNow {
		s.violated("launcher %s is called, and known to be silent", l.pod)
	}
}

// asked looks at a swap that is asked for the first time with its key.
func (s *sim) asked(inc *incarnation, l *simLauncher, key string, req launcherapi.SwapRequest) {
	id := req.In.InstanceID + req.In.ID
	s.besideStray(inc, l, req)
	for _, earlier := range l.swaps {
		if !earlier.ended && strings.HasPrefix(key, earlier.record+".") {
			s.violated("a swap is asked for requester %s while an earlier one is under way", key)
		}
	}
	for _, r := range s.records() {
		if r.SwapKey() != key || r.on.Name != l.pod {
			continue
		}
		if time.Now().Before(r.RetryAt) {
			s.violated("attempt %d of %s is made before its time", r.Attempt, r.Name)
		}
		if r.Instance != id {
			s.violated("a swap to %s is asked for the record of %s", id, r.Instance)
		}
		return
	}
	s.violated("a swap is asked with the key %s, and no record is of it", key)
}

// besideStray looks at a swap that a controller asks for: who is awake beside its
// launcher for nobody, and could have been heard, is put to rest before.
func (s *sim) besideStray(inc *incarnation, l *simLauncher, req launcherapi.SwapRequest) {
	for _, gpu := range req.GPUUUIDs {
		for _, i := range l.beside(gpu) {
			v := inc.views[i.l.key]
			bound := slices.ContainsFunc(s.records(), func(r simRecord) bool { return r.on.Name == i.l.pod && r.Instance == i.InstanceID })
			if v != nil && v.Instances == nil && time.Since(inc.born) < decide.Patience/2 && i.State == string(launcher.Awake) && !bound && i.Annotations[podmeta.AnnotationMadeFor] != "" {
				s.violated("a swap on launcher %s is asked for, and nobody has heard whether %s of launcher %s is awake", l.pod, i.InstanceID, i.l.pod)
			}
		}
	}
}

// startedUp looks at an engine that has started: nobody waits for one that
// nobody wants.
func (s *sim) startedUp(l *simLauncher, i *simInstance) {
	if _, connected := s.inc.knows(l, i.InstanceID); !connected || time.Since(s.calm) < detection {
		return
	}
	if slices.ContainsFunc(s.records(), func(r simRecord) bool {
		return r.on.Name == l.pod && r.Instance == i.InstanceID && s.living(r.RequesterUID) != nil
	}) {
		return // another one has come that wants it
	}
	for _, sw := range l.swaps {
		uid := types.UID(strings.SplitN(sw.record, ".", 2)[0])
		at, leaves := s.leaves[uid]
		if sw.id == i.SwapID && leaves && time.Since(at) > detection {
			s.violated("the start of %s goes on to its end, though its requester %s leaves", i.InstanceID, uid)
		}
	}
}

// died notes who is served by an instance that ends, and is to be replaced. While the launcher
// lives, no controller knows that the instance served a requester whose record cannot be read.
func (s *sim) died(l *simLauncher, i *simInstance, how string) {
	if i.awake.IsZero() || time.Since(i.awake) < detection {
		return
	}
	for _, r := range s.records() {
		p := s.programs[r.RequesterUID]
		if r.on.Name != l.pod || r.Instance != i.InstanceID || !l.dead && s.unreadable(r) || s.living(r.RequesterUID) == nil || p == nil || !p.up || !p.proxy.Ready || !p.honest() || !simServes(s.api.pods[p.pod]) || s.restartsInPlace(p.uid) {
			continue
		}
		if state, connected := s.inc.knows(l, i.InstanceID); state == launcher.Awake && connected {
			s.doomed[p.uid] = how
		}
	}
}

// restartsInPlace says that a requester stays when its instance ends, which is started again.
func (s *sim) restartsInPlace(uid types.UID) bool {
	pod := s.living(uid)
	return pod != nil && pod.Annotations[podmeta.AnnotationOnExit] == string(podmeta.OnExitRestart)
}

// honest says that the program names the GPUs that the requester has.
func (p *simProgram) honest() bool { return p.lie == nil && p.mute == "" }

// checkDoomed looks for requesters that should have been replaced.
func (s *sim) checkDoomed() {
	for uid, how := range s.doomed {
		p := s.programs[uid]
		if l, _ := p.target(); s.living(uid) != nil && (l == nil || l.reachable()) && !p.hung {
			s.violated("requester %s is still there: %s while it served", uid, how)
		}
	}
}
