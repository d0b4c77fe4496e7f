package binding

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// detection is how long a requester may be ready after its instance has ceased
// to be awake, while nothing is disturbed.
const detection = time.Second

// simRecord is a record, and the launcher Pod that it stands on.
type simRecord struct {
	podmeta.Binding
	on *corev1.Pod
}

// records are all records there are.
func (s *sim) records() []simRecord {
	if s.read == nil || s.readAt != s.api.version {
		s.read, s.readAt = s.readRecords(), s.api.version
	}
	return s.read
}

func (s *sim) readRecords() []simRecord {
	all := []simRecord{}
	for _, name := range sortedKeys(s.api.pods) {
		if pod := s.api.pods[name]; simIsLauncher(pod) {
			records, problems := podmeta.ReadBindings(s.restored(pod))
			for _, p := range problems {
				s.violated("a record cannot be read: %s", p)
			}
			for _, b := range records {
				all = append(all, simRecord{b, pod})
			}
		}
	}
	return all
}

// unreadable says that somebody damaged a record.
func (s *sim) unreadable(r simRecord) bool {
	_, ok := s.damaged[r.on.Annotations[podmeta.AnnotationBindingPrefix+r.Instance]]
	return ok
}

// restored is a launcher Pod as it would be had nobody damaged its records.
func (s *sim) restored(pod *corev1.Pod) *corev1.Pod {
	for key, text := range pod.Annotations {
		if was, ok := s.damaged[text]; ok {
			pod = pod.DeepCopy()
			pod.Annotations[key] = was
		}
	}
	return pod
}

// living says that a requester is there and wanted.
func (s *sim) living(uid types.UID) *corev1.Pod {
	name, _, _ := strings.Cut(string(uid), simAgain)
	pod := s.api.pods[name]
	if pod == nil || pod.UID != uid || pod.DeletionTimestamp != nil || podmeta.Finished(pod) || s.api.nodes[pod.Spec.NodeName] == nil {
		return nil
	}
	return pod
}

// check looks for what must never be. It is called after every step.
func (s *sim) check() {
	records := s.records()
	seen := map[types.UID]bool{}
	for _, r := range records {
		if pod := s.api.pods[r.Name]; pod != nil && pod.UID == r.RequesterUID && !slices.Contains(pod.Finalizers, podmeta.FinalizerRequester) && !s.byHand[pod.UID] && !s.unheld[pod.UID] {
			s.violated("requester %s is bound, and nothing keeps it until its model sleeps", r.Name)
		}
		if seen[r.RequesterUID] && !s.byHand[r.RequesterUID] {
			s.violated("requester %s has two records", r.Name)
		}
		seen[r.RequesterUID] = true
	}
	owner := map[string]simNeighbour{}
	for _, key := range sortedKeys(s.launchers) {
		l := s.launchers[key]
		if l.dead {
			continue
		}
		for _, id := range sortedKeys(l.all) {
			i := l.all[id]
			if !awake(i) {
				continue
			}
			for _, gpu := range i.GPUUUIDs {
				if o := owner[gpu]; o.l != nil && (o.l == l || !o.byHand && !i.byHand) { // launchers see each other's memory, and nothing else
					s.violated("%s and %s are awake on %s", o.InstanceID, id, gpu)
				}
				owner[gpu] = simNeighbour{i, l}
			}
		}
	}
	for _, uid := range slices.Sorted(func(yield func(types.UID) bool) {
		for uid := range s.programs {
			if !yield(uid) {
				return
			}
		}
	}) {
		s.checkProgram(s.programs[uid], records)
	}
	s.checkSlices()
}

func (s *sim) checkProgram(p *simProgram, records []simRecord) {
	bound := slices.ContainsFunc(records, func(r simRecord) bool { return r.RequesterUID == p.uid })
	readable := slices.ContainsFunc(records, func(r simRecord) bool { return r.RequesterUID == p.uid && !s.unreadable(r) })
	if _, noted := s.unrecorded[p.uid]; bound {
		delete(s.unrecorded, p.uid)
	} else if !noted {
		s.unrecorded[p.uid] = time.Now()
	}
	if !p.up || p.proxy.State != requesterapi.StateBound || p.there() == nil {
		delete(s.stale, p.pod)
		return
	}
	l, i := p.target()
	for _, r := range records {
		if i != nil && l.pod == r.on.Name && r.Instance == i.InstanceID && r.RequesterUID != p.uid {
			s.violated("requester %s carries traffic to %s, which is bound to %s", p.pod, i.InstanceID, r.Name)
		}
	}
	if !p.proxy.Ready || awake(i) {
		delete(s.stale, p.pod)
		return
	}
	since, ok := s.stale[p.pod]
	if v := s.viewOf(l); l != nil && (v == nil || !v.Connected || !l.reachable()) || p.hung || p.odd == oddStays {
		ok = false // nobody can know, or help it
	}
	if !ok {
		since = time.Now()
		s.stale[p.pod] = since
	}
	limit := detection
	if s.calm.After(since) {
		since = s.calm
		limit += retryAfter << doublings // a process that began while the API server was away asks it again only then
	}
	if p.odd == oddUnready && !readable {
		limit += retryAfter << doublings // all that helps is its end, which is asked of an API server that may have been away
	}
	if time.Since(since) > limit && s.living(p.uid) != nil {
		s.violated("requester %s is ready, and its instance has not been awake for long", p.pod)
	}
}

// swappedOut checks that a swap puts nobody to sleep that serves a living requester.
func (s *sim) swappedOut(l *simLauncher, i *simInstance, by string) {
	for _, r := range s.records() {
		if r.on.Name == l.pod && r.Instance == i.InstanceID && s.living(r.RequesterUID) != nil && slices.Equal(s.programs[r.RequesterUID].gpus, r.GPUs) {
			s.violated("a swap to %s puts %s to sleep, which serves the living requester %s", by, i.InstanceID, r.Name)
		}
	}
}

// swappedOutAhead checks that a swap for a requester whose program does not run yet puts nobody
// to sleep that a record binds. No controller knows whom a damaged record binds once that
// requester has gone.
func (s *sim) swappedOutAhead(l *simLauncher, i *simInstance, sw *simSwap) {
	uid := types.UID(strings.SplitN(sw.record, ".", 2)[0])
	if p := s.programs[uid]; p == nil || p.ran() {
		return
	}
	for _, r := range s.records() {
		if bound := s.programs[r.RequesterUID]; s.unreadable(r) && (bound == nil || !bound.up || bound.there() == nil) {
			continue
		}
		if r.on.Name == l.pod && r.Instance == i.InstanceID && r.RequesterUID != uid {
			s.violated("a swap for %s, whose program has not run yet, puts %s to sleep, which is bound to %s", uid, i.InstanceID, r.Name)
		}
	}
}

// putToSleep checks that the controller puts nobody to sleep whose clients'
// connections are still carried.
func (s *sim) putToSleep(l *simLauncher, i *simInstance) {
	for _, p := range s.programs {
		if p.up && p.proxy.State == requesterapi.StateBound && p.there() != nil {
			if tl, ti := p.target(); tl == l && ti == i && awake(i) {
				s.violated("%s is put to sleep while requester %s carries traffic to it", i.InstanceID, p.pod)
			}
		}
	}
}

// checkRest looks for what must not be at rest.
func (s *sim) checkRest() {
	clear(s.unheld)
	s.check()
	s.checkDoomed()
	s.checkSlicesAtRest()
	records := s.records()
	for _, name := range sortedKeys(s.api.pods) {
		pod := s.api.pods[name]
		at := slices.IndexFunc(records, func(r simRecord) bool { return r.RequesterUID == pod.UID })
		switch {
		case podmeta.IsAgent(pod):
		case simIsLauncher(pod):
			has := slices.Contains(pod.Finalizers, podmeta.FinalizerProvider)
			if want := len(podmeta.BoundTo(pod)) > 0; has != want {
				s.violated("at rest: launcher Pod %s has our finalizer: %v; records: %v", name, has, want)
			}
			if key, _ := simForeignRecord(""); pod.Labels[podmeta.LabelLauncherConfig] == "each" && pod.Annotations[key] == "" {
				s.violated("at rest: the record of another namespace is gone from launcher Pod %s", name)
			}
			if pod.DeletionTimestamp != nil {
				s.violated("at rest: launcher Pod %s is still being deleted", name)
			}
		case isSimStranger(pod):
			s.checkStranger(pod)
		case pod.DeletionTimestamp != nil:
			s.violated("at rest: requester %s is still being deleted, finalizers %v", name, pod.Finalizers)
		case podmeta.Finished(pod):
			if slices.Contains(pod.Finalizers, podmeta.FinalizerRequester) || at >= 0 {
				s.violated("at rest: requester %s has ended, and has a record or our finalizer", name)
			}
			if simServes(pod) || pod.Labels["model"] != "" {
				s.violated("at rest: requester %s has ended, and is shown as served: %s", name, pod.Annotations[podmeta.AnnotationStatus])
			}
		case pod.Spec.NodeName != "":
			s.checkOne(pod)
		}
	}
	s.checkHoldAtRest()
	for _, r := range records {
		if s.living(r.RequesterUID) == nil {
			s.violated("at rest: a record of %s, which is not there any more", r.Name)
		}
	}
	for _, key := range sortedKeys(s.launchers) {
		l := s.launchers[key]
		for _, id := range sortedKeys(l.all) {
			i := l.all[id]
			bound := slices.ContainsFunc(records, func(r simRecord) bool { return r.on.Name == l.pod && r.Instance == id })
			if state := launcher.State(i.State); !l.dead && state != launcher.Sleeping && !bound {
				s.violated("at rest: instance %s is %s, and nobody is bound to it", id, i.State)
			}
		}
	}
	for name, n := range s.inc.ctrl.nodes {
		if !slices.ContainsFunc(sortedKeys(s.api.pods), func(pod string) bool {
			return s.api.pods[pod].Spec.NodeName == name && !podmeta.IsAgent(s.api.pods[pod])
		}) {
			s.violated("at rest: node %q has no Pods, and is not forgotten", name)
		}
		n.calls.mu.Lock()
		for key, c := range n.calls.all {
			if !c.over {
				s.violated("at rest: call %s is under way", key)
			}
		}
		n.calls.mu.Unlock()
	}
}

// served counts the requesters that are.
func (s *sim) served() (n int) {
	for _, p := range s.programs {
		if s.living(p.uid) != nil && p.proxy.Ready {
			n++
		}
	}
	return n
}

// allowed is how many writes to the API server each requester needs.
func (s *sim) allowed() map[types.UID]int {
	allowed := map[types.UID]int{}
	for _, name := range s.requesters() {
		pod := s.api.pods[name]
		allowed[pod.UID] = 3
		if wanted, _ := s.asks(pod); len(pod.Spec.ReadinessGates) > 0 && len(wanted.Labels) > 0 {
			allowed[pod.UID]++
		}
		if s.policy { // the finalizer is there
			allowed[pod.UID]--
		}
	}
	return allowed
}
