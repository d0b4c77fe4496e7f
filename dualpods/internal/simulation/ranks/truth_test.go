package ranks

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	program "hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
)

// truth is what really became of the starts of servers, and checks the promises.
type truth struct {
	w         *world
	starts    map[string]*start // by name
	byAttempt map[string]*start
	swaps     map[string]*swap // the last one of each attempt
	served    int
	woken     int
	stopped   int
	recreated int
}

// start is one start of a server, as its ranks were told of it.
type start struct {
	name     string
	size     int
	pods     map[int]*corev1.Pod // that were told of it, by index, as they were last
	attempts map[int]string      // of those Pods' records
	ready    map[string]bool     // attempts that had prepared, or had gone on, at a moment when all had
	broken   time.Time           // since when a rank does not go on; zero: all do
	healthy  time.Time           // since when all wait for their commit; zero: not all do
}

// written looks at a write of a Pod: it may tell a rank of a start.
func (t *truth) written(was, is *corev1.Pod) {
	for _, key := range []string{podmeta.AnnotationServer, podmeta.AnnotationNextServer} {
		if is.Annotations[key] != "" && is.Annotations[key] != was.Annotations[key] {
			t.told(is, podmeta.ReadServer(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{podmeta.AnnotationServer: is.Annotations[key]}}}))
		}
	}
}

// told notes that a rank was told of a start.
func (t *truth) told(is *corev1.Pod, told podmeta.Server) {
	var index, size int
	if rank := is.Annotations[podmeta.AnnotationRank]; rank != "" {
		index, size = rankOf(rank)
	}
	st := t.starts[told.Group]
	if st == nil {
		st = &start{name: told.Group, size: size, pods: map[int]*corev1.Pod{}, attempts: map[int]string{}, ready: map[string]bool{}}
		t.starts[told.Group] = st
	}
	if other := t.byAttempt[told.Attempt]; other != nil && other != st {
		t.w.violated("told twice", "the attempt %s was told of the start %s, and then of %s", told.Attempt, other.name, st.name)
	}
	st.pods[index], st.attempts[index], t.byAttempt[told.Attempt] = is, told.Attempt, st
}

// asked notes a swap.
func (t *truth) asked(s *swap) {
	t.swaps[s.key] = s
	there := s.l.all[s.instance()]
	if isRank := s.req.In.Rank != nil || there != nil && there.Rank != nil; isRank && t.startOf(s) == nil {
		t.w.violated("a rank starts alone", "%s is asked for, and was told of no start", s.key)
	}
}

// startOf returns the start for which a swap is.
func (t *truth) startOf(s *swap) *start { return t.byAttempt[s.key] }

// all reports whether so holds for the swaps of all ranks of a start.
func (t *truth) all(st *start, so func(*swap) bool) bool {
	for index := range st.size {
		if s := t.swaps[st.attempts[index]]; s == nil || !so(s) {
			return false
		}
	}
	return true
}

// prepared notes whether all ranks of a start have prepared now.
func (t *truth) prepared(s *swap) {
	if st := t.startOf(s); st != nil && t.all(st, func(s *swap) bool { return s.prepared && (!s.ended || s.done) }) {
		for _, attempt := range st.attempts {
			st.ready[attempt] = true
		}
	}
}

// begins checks a swap that is about to change something.
func (t *truth) begins(s *swap) {
	st := t.startOf(s)
	if t.w.group != nil {
		t.w.group.begins(s)
		if st == nil {
			return
		}
	}
	if s.req.Prepare && (st == nil || !st.ready[s.key]) {
		t.w.violated("begins alone", "%s begins, and not all ranks of its start had prepared", s.key)
	}
}

// commits checks a swap for which a client said commit.
func (t *truth) commits(s *swap) {
	if t.w.group != nil {
		t.w.group.commits(s)
		return
	}
	st := t.startOf(s)
	if st == nil || !t.all(st, func(s *swap) bool { return s.healthy }) {
		t.w.violated("commits early", "%s is committed, and not all ranks of its start were healthy", s.key)
		return
	}
	if s.in.Rank.Index > 0 {
		return
	}
	if !t.all(st, func(s *swap) bool { return s.committed || s.done }) {
		t.w.violated("commits the entry first", "%s is committed before all workers of its start", s.key)
	}
}

// unseen is how long it may take until the controller cannot but know that an engine has ended:
// streams are late, and a call takes its time.
const unseen = 2*longestLag + 7*time.Second

// opens checks a gate that opens.
func (t *truth) opens(s *swap) {
	st := t.startOf(s)
	if s.in.Rank == nil || s.in.Rank.Index > 0 || st == nil {
		return
	}
	t.served++
	if !s.made {
		t.woken++
	}
	for index := 1; index < st.size; index++ {
		of := t.swaps[st.attempts[index]]
		if of == nil || of.in == nil {
			t.w.violated("serves without a rank", "%s opens, and there is no worker %d", s.key, index)
			continue
		}
		worker := of.in
		switch met := s.in.met[index]; {
		case time.Since(worker.changedAt) > unseen && !worker.is(program.Awake) && t.w.group == nil: // a group that is changed for good goes on
			t.w.violated("serves without a rank", "%s opens, and its worker %s is %s", s.key, worker.InstanceID, worker.State)
		case met == nil || met.Rank.Group != s.in.Rank.Group:
			t.w.violated("ranks of different starts serve together", "%s opens, and its entry has met %+v", s.key, met)
		case met != worker && worker.is(program.Awake):
			t.w.violated("ranks of different starts serve together", "%s opens, and its entry has met %s instead of %s", s.key, met.InstanceID, worker.InstanceID)
		}
	}
}

// isWell reports whether all ranks of a start were committed and go on.
func (t *truth) isWell(st *start) bool {
	for index := range st.size {
		s, pod := t.swaps[st.attempts[index]], st.pods[index]
		if s == nil || !s.committed && !s.done || !s.in.is(program.Awake) || s.l.dead {
			return false
		}
		now := t.w.api.podOf(pod.Name, pod.UID)
		if now == nil || now.DeletionTimestamp != nil || podmeta.Finished(now) || podmeta.ServerOf(now, st.attempts[index]) == (podmeta.Server{}) {
			return false
		}
		if on := t.w.api.pod(s.l.pod); on == nil || on.DeletionTimestamp != nil || t.record(on, now) != st.attempts[index] {
			return false
		}
	}
	return true
}

// record returns the attempt that a launcher's Pod has for a requester.
func (t *truth) record(launcher, pod *corev1.Pod) string {
	records, _ := podmeta.ReadBindings(launcher)
	for _, r := range records {
		if r.RequesterUID == pod.UID {
			return r.SwapKey()
		}
	}
	return ""
}

// stops checks an order to undo a swap.
func (t *truth) stops(s *swap) {
	t.stopped++
	if st := t.startOf(s); st != nil && t.isWell(st) {
		t.w.violated("stopped in vain", "%s is to be undone, and all ranks of its start serve", s.key)
	}
}

// deletes checks an order to delete an instance.
func (t *truth) deletes(e *engine) {
	t.stopped++
	if e.start != nil && t.isWell(e.start) && !t.mayRestart(e.start) {
		t.w.violated("stopped in vain", "%s is to be deleted, and all ranks of its start serve", e.InstanceID)
	}
}

// tick looks again and again for ranks that go on alone.
func (t *truth) tick() {
	for _, uid := range sorted(t.w.launchers) {
		l := t.w.launchers[uid]
		if !l.answers() {
			t.w.disturb(5 * time.Second)
			continue
		}
		for _, id := range sorted(l.all) {
			t.checkRank(l.all[id])
		}
	}
	for _, name := range sorted(t.starts) {
		t.checkHealthy(t.starts[name])
	}
	t.w.after(time.Second, t.tick)
}

// longestAlone is how long a rank may go on after another one has ended while nothing is disturbed. A
// worker is told to sleep once if its ModelServing is gone, and ended when that was in vain.
const longestAlone = verbLimit + time.Minute

// checkHealthy checks that ranks do not wait for their commit for long once all of them do.
func (t *truth) checkHealthy(st *start) {
	if !t.all(st, func(s *swap) bool { return s.atCommit }) {
		st.healthy = time.Time{}
		return
	}
	if st.healthy.IsZero() {
		st.healthy = time.Now()
	}
	if t.undisturbed(st.healthy) > 20*time.Second {
		t.w.violated("healthy in vain", "nobody says commit to the ranks of the start %s", st.name)
	}
}

// undisturbed returns for how long nothing has been disturbed since a time.
func (t *truth) undisturbed(since time.Time) time.Duration {
	if t.w.disturbed.After(since) {
		since = t.w.disturbed
	}
	return time.Since(since)
}

func (t *truth) checkRank(e *engine) {
	st := e.start
	if st == nil || !e.is(program.Starting, program.Waking, program.Awake) {
		return
	}
	if !t.isBroken(st) {
		st.broken = time.Time{}
		return
	}
	if st.broken.IsZero() {
		st.broken = time.Now()
	}
	if t.undisturbed(st.broken) > longestAlone {
		t.w.violated("goes on alone", "%s is %s, and another rank of its start %s has ended", e.InstanceID, e.State, st.name)
	}
}

// isBroken reports whether a rank of a start does not go on, or the entry loads in vain.
func (t *truth) isBroken(st *start) bool {
	return !t.all(st, func(s *swap) bool {
		return (!s.ended || s.done && s.in.start == st && s.in.is(program.Starting, program.Waking, program.Awake)) && !s.in.loadsInVain()
	})
}

// loadsInVain reports whether a worker that an entry has met ended while the entry loads: it never
// meets another one.
func (e *engine) loadsInVain() bool {
	return e.is(program.Starting) && slices.ContainsFunc(slices.Collect(maps.Values(e.met)), func(worker *engine) bool { return !worker.runs() })
}

// checkRest checks the world after nothing has happened for long.
func (t *truth) checkRest() {
	w := t.w
	for _, name := range sorted(w.api.objects[servingKind]) {
		serving := w.serving(name)
		for _, g := range serving.Status.Groups {
			if g.State != "Running" && !mayNotServe(serving, &g) {
				w.violated("does not serve", "group %s is %s: %s", g.Name, g.State, g.Message)
			}
		}
		if len(serving.Status.Groups) != int(serving.Spec.Count()) {
			w.violated("does not serve", "ModelServing %s has %d groups instead of %d", name, len(serving.Status.Groups), serving.Spec.Count())
		}
	}
	for _, pod := range w.api.pods() {
		if podmeta.IsRequester(pod) && !podmeta.Ready(pod) && !t.needNotServe(pod) {
			w.violated("does not serve", "Pod %s is not ready: %s", pod.Name, pod.Annotations[podmeta.AnnotationStatus])
		}
	}
	for _, uid := range sorted(w.launchers) {
		t.checkLauncher(w.launchers[uid])
	}
	if w.group != nil {
		w.group.checkRest()
	}
}

func (t *truth) checkLauncher(l *launcher) {
	if l.dead {
		return
	}
	for _, key := range sorted(l.swaps) {
		if s := l.swaps[key]; !s.ended {
			t.w.violated("held for ever", "%s of launcher %s is not over: %+v", key, l.pod, s.progress)
		}
	}
	for _, id := range sorted(l.all) {
		e := l.all[id]
		if e.claim != nil || e.SwapID != "" {
			t.w.violated("held for ever", "instance %s is %s and claimed by %s", id, e.State, e.SwapID)
		}
		if e.Rank == nil {
			continue
		}
		if e.is(program.Awake) && (e.start == nil || !t.isWell(e.start)) {
			t.w.violated("goes on alone", "instance %s is awake, and its server is not whole", id)
		}
		if e.is(program.Awake) && e.Rank.Index == 0 && !t.w.allRun(e) {
			t.w.violated("serves without a rank", "instance %s is awake without all of its workers", id)
		}
	}
	for id, has := range l.leases {
		if has.expires.After(time.Now()) {
			t.w.violated("held for ever", "the ports of instance %s are leased", id)
		}
	}
}

func rankOf(text string) (index, size int) {
	for n, c := range text {
		if c == '/' {
			return number(text[:n]), number(text[n+1:])
		}
	}
	return 0, 0
}

func number(text string) (n int) {
	for _, c := range text {
		n = 10*n + int(c-'0')
	}
	return n
}
