package groups

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// rankWorld returns a World of a group of one server of two ranks, whose models are being changed in
// place: the records of both have the change.
func rankWorld(state v1alpha1.ChangeState, so func(w *World, entry, worker *Member)) *World {
	roles := []v1alpha1.ServingRole{{Name: "server", Replicas: new(int32(1)), WorkerReplicas: new(int32(1)), EntryTemplate: patched(oldPatch), WorkerTemplate: patched(oldPatch)}}
	change := func(r *v1alpha1.ServingRole) {
		r.EntryTemplate, r.WorkerTemplate = patched(newPatch), patched(newPatch)
	}
	return changeWorldOf(roles, change, state, func(w *World, m []*Member) {
		for _, rank := range m {
			rank.Bound.Record.Since = now.Add(-1)
			rank.toldNow(w)
			rank.Bound.Record.Change.Since, rank.Bound.Record.Change.New = now, true
		}
		tell(m...)
		so(w, m[0], m[1])
	})
}

// startsIn has a rank be told of the start of its new server, and its swap be in a phase. Its new
// instance is there, in a state; empty: it is not.
func (m *Member) startsIn(w *World, phase string, state launcher.State) {
	change := *m.Bound.Record.Change
	m.changesIn(w, phase)
	m.Bound.Record.Change = &change
	m.NextServer = podmeta.Server{Attempt: m.Bound.Record.Next().SwapKey()}
	if m.Bound.NextInstance = nil; state != "" {
		m.Bound.NextInstance = instance(string(state), m.pod)
	}
}

// sleepsNext has the new instance of a rank be there, and sleep.
func (m *Member) sleepsNext() {
	m.Bound.NextInstance, m.Bound.Record.Change.New = instance("sleeping", m.pod), false
}

func TestRanksAreChangedInPlaceTogether(t *testing.T) {
	const begun, undoing = v1alpha1.ChangeBegun, v1alpha1.ChangeUndoing
	phases := func(entry string, is launcher.State, worker string, its launcher.State) func(*World, *Member, *Member) {
		return func(w *World, e, r *Member) { e.startsIn(w, entry, is); r.startsIn(w, worker, its) }
	}
	untold := func(w *World, m *Member) { m.SwapTo, m.Bound.Record.Change = podmeta.SwapTo{}, nil }
	for name, c := range map[string]struct {
		state v1alpha1.ChangeState
		so    func(w *World, entry, worker *Member)
		row   string
		do    Action
		ranks []int // that are ordered it
		says  string
	}{
		"one was not told of the change":     {begun, func(w *World, _, r *Member) { untold(w, r) }, "server not told", Patch, []int{1}, ""},
		"the record of one does not have it": {begun, func(_ *World, _, r *Member) { r.Bound.Record.Change = nil }, "changes", "", nil, ""},
		"the records have it":                {begun, func(*World, *Member, *Member) {}, "rank not told of the start", Tell, []int{0, 1}, ""},
		"the launcher of one is silent":      {begun, func(_ *World, _, r *Member) { r.Bound.Known = false }, "changes", "", nil, ""},
		"the entry was told":                 {begun, func(w *World, e, _ *Member) { e.startsIn(w, "admit", "") }, "rank not told of the start", Tell, []int{1}, ""},
		"both new instances sleep":           {begun, func(_ *World, e, r *Member) { e.sleepsNext(); r.sleepsNext() }, "rank not told of the start", Tell, []int{0, 1}, ""},
		"one new instance sleeps":            {begun, func(_ *World, _, r *Member) { r.sleepsNext() }, "instances of earlier servers", Remove, []int{1}, ""},
		"they sleep, of different servers":   {begun, func(_ *World, e, r *Member) { e.sleepsNext(); r.sleepsNext(); r.Bound.NextInstance.Rank.Group = "h" }, "instances of earlier servers", Remove, []int{0, 1}, ""},
		"both sleep, and the change was undone before": {begun, func(w *World, e, r *Member) {
			e.sleepsNext()
			r.sleepsNext()
			w.Serving.Status.Groups[0].Change.Try = 2
			for _, m := range []*Member{e, r} {
				m.SwapTo.Try, m.Bound.Record.Change.To = 2, podmeta.SwapTo{Revision: w.Revision, Try: 2}.ID()
			}
		}, "instances of earlier servers", Remove, []int{0, 1}, ""},
		"one is gone, and its record has it still":                  {begun, func(_ *World, _, r *Member) { r.Bound.Record.Change.New = false }, "changes", "", nil, ""},
		"both have prepared":                                        {begun, phases("go", "", "go", ""), "all prepared to change", Go, []int{0, 1}, ""},
		"the worker is healthy, the entry loads":                    {begun, phases("start", "starting", "commit", "awake"), "changes", "", nil, ""},
		"both are healthy":                                          {begun, phases("commit", "awake", "commit", "awake"), "all changed", "", nil, ""},
		"the worker's launcher undoes its swap":                     {begun, phases("start", "starting", "undo", ""), "server lost", "", nil, "the new model of Pod llama-0-server-0-1 failed"},
		"the worker begins again":                                   {begun, phases("commit", "awake", "go", ""), "server lost", "", nil, "Pod llama-0-server-0-1 begins again"},
		"a worker that sleeps has prepared, and the entry is awake": {begun, phases("commit", "awake", "go", "sleeping"), "all prepared to change", Go, []int{1}, ""},
		"the entry is told the same as before":                      {begun, func(w *World, e, r *Member) { e.changedNow(w); r.startsIn(w, "admit", "") }, "server lost", "", nil, "the engine of Pod llama-0-server-0-0 is told the same"},
		"both are told the same as before":                          {begun, func(w *World, e, r *Member) { e.changedNow(w); r.changedNow(w) }, "all changed", "", nil, ""},
		"it is undone, the new worker starts": {undoing, func(w *World, e, r *Member) {
			phases("start", "starting", "commit", "awake")(w, e, r)
			e.SwapTo, r.SwapTo = podmeta.SwapTo{}, podmeta.SwapTo{}
		}, "undo swap", Undo, []int{1}, ""},
		"it is undone, the new worker is gone": {undoing, func(w *World, e, r *Member) {
			phases("start", "starting", "undo", "")(w, e, r)
			e.SwapTo, r.SwapTo, r.Bound.Instance.State = podmeta.SwapTo{}, podmeta.SwapTo{}, "waking"
		}, "undo swap", Undo, []int{0}, ""},
		"it is undone, the new worker is not reported yet": {undoing, func(w *World, e, r *Member) {
			phases("start", "starting", "start", "")(w, e, r)
			e.SwapTo, r.SwapTo, r.Bound.Instance.State = podmeta.SwapTo{}, podmeta.SwapTo{}, "sleeping"
		}, "undo swap", Undo, []int{1}, ""},
		"it is undone, the new worker was woken": {undoing, func(w *World, e, r *Member) {
			phases("commit", "awake", "commit", "awake")(w, e, r)
			e.SwapTo, r.SwapTo, r.Bound.Record.Change.New = podmeta.SwapTo{}, podmeta.SwapTo{}, false
		}, "undo swap", Undo, []int{0, 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := rankWorld(c.state, c.so)
			steps := w.changeSteps()
			require.NotEmpty(t, steps)
			ordered := []int(nil)
			for _, s := range steps {
				for _, m := range s.Ranks {
					ordered = append(ordered, m.pod)
				}
				if s.Do == Patch {
					ordered = append(ordered, s.Of.pod)
				}
			}
			last := steps[len(steps)-1]
			assert.Equal(t, []string{c.row, string(c.do)}, []string{steps[0].Row, string(last.Do)})
			assert.Equal(t, c.ranks, ordered)
			assert.Contains(t, steps[0].Why+steps[0].Change.Message, c.says)
			assert.True(t, steps[0].Changes && last.Change != nil || last.Do == Patch)
		})
	}
}

func TestEntryIsToldFirstOfTheStartOfItsNewServer(t *testing.T) {
	s, y := newYard(t)
	member := func(name, on, instance string, index int) *Member {
		var pod corev1.Pod
		require.True(t, s.read(name, &pod))
		l := launcherPod()
		l.UID = types.UID(on)
		record := &podmeta.Binding{Instance: "old", RequesterUID: pod.UID, Attempt: 4, Since: now, Change: &podmeta.Change{To: "r.1", Instance: instance, Since: now.Add(1)}}
		m := &Member{place: place{role: "prefill", pod: index}, Bound: &Bound{Launcher: l, Record: record, Known: true}}
		m.Pod.Is = &pod
		return m
	}
	e, w := member(entry, "first", "next", 0), member(worker, "second", "other", 1)
	y.orders = nil
	step := &Step{Do: Tell, Of: e, Ranks: []*Member{e, w}, Changes: true}
	present := e.Pod.Is
	e.Pod.Is = present.DeepCopy()
	e.Pod.Is.ResourceVersion = "1"
	require.Error(t, s.c.order(t.Context(), step), "the entry has changed since it was read")
	assert.Equal(t, []string{"first: lease 8 for next"}, y.orders, "the worker is not told before it")
	e.Pod.Is = present
	y.refuses["second: lease 8 for other"] = launcher.Conflictf("no port is free")
	require.Error(t, s.c.order(t.Context(), step))
	told := func(name string) podmeta.Server {
		var pod corev1.Pod
		require.True(t, s.read(name, &pod))
		assert.Equal(t, podmeta.Server{}, podmeta.ReadServer(&pod), "the old server goes on")
		return podmeta.ServerOf(&pod, map[string]*Member{entry: e, worker: w}[name].Bound.Record.Next().SwapKey())
	}
	group := e.Bound.Record.Next().SwapKey()
	assert.Equal(t, []podmeta.Server{{Attempt: group, Group: group, Entry: "10.0.0.9:20007"}, {}}, []podmeta.Server{told(entry), told(worker)})

	// Another process tells the worker of the same address, though the lease may be another one by now.
	clear(y.refuses)
	e.NextServer, step.Ranks, y.orders = podmeta.Server{Attempt: group, Group: group, Entry: "10.0.0.9:20015"}, []*Member{w}, nil
	require.NoError(t, s.c.order(t.Context(), step))
	assert.Equal(t, []string{"second: lease 8 for other"}, y.orders)
	assert.Equal(t, podmeta.Server{Attempt: w.Bound.Record.Next().SwapKey(), Group: group, Entry: "10.0.0.9:20015"}, told(worker))
}

func TestStartOfTheNewServerBecomesThatOfTheRank(t *testing.T) {
	w := rankWorld(v1alpha1.ChangeCommitted, func(w *World, e, r *Member) {
		for _, m := range []*Member{e, r} {
			m.startsIn(w, "commit", "awake")
			next := *m.Bound.Record.Next()
			m.Bound.Record = &next
			m.Pod.Is.Annotations[podmeta.AnnotationServer], m.Pod.Is.Annotations[podmeta.AnnotationNextServer] = m.Server.Encode(), m.NextServer.Encode()
		}
	})
	for _, m := range w.Members {
		after := w.relabelled(m)
		assert.Equal(t, m.NextServer, podmeta.ReadServer(after))
		assert.NotContains(t, after.Annotations, podmeta.AnnotationNextServer)
		assert.Contains(t, m.told(w.planOf(m.place), m.SwapTo).Annotations, podmeta.AnnotationNextServer)
		assert.NotContains(t, m.told(w.planOf(m.place), podmeta.SwapTo{}).Annotations, podmeta.AnnotationNextServer, "the change was withdrawn")
	}
}
