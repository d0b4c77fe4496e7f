package groups

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// pair returns the World of a role whose entry and worker serve as two ranks.
func pair() *World {
	serving := llama()
	role := &serving.Spec.Template.Roles[0]
	role.WorkerReplicas, role.WorkerTemplate = new(int32(1)), role.EntryTemplate
	w := &World{Now: now, Serving: serving, Revision: hash(content(&serving.Spec.Template))}
	w.planned("requester")
	w.groups = w.groups[:1]
	for _, p := range w.wantedPlaces() {
		m := &Member{place: p, Wanted: true, IsReady: true}
		m.Pod.Is = w.newPod(p)
		m.Pod.Is.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		record := &podmeta.Binding{Instance: "i", RequesterUID: "uid", Attempt: 1, Since: now.Add(time.Duration(p.pod))}
		m.Bound = &Bound{Launcher: launcherPod(), Record: record, Known: true, Instance: instance("awake", p.pod)}
		w.Members = append(w.Members, m)
	}
	tell(w.Members...)
	return w
}

func instance(state string, index int) *launcherapi.Instance {
	return &launcherapi.Instance{InstanceID: "i", State: state, Rank: &launcherapi.Rank{Group: "g", Index: index, Size: 2, Entry: "10.0.0.9:20007"}}
}

// tell tells ranks of the start that the first of them takes part in.
func tell(ranks ...*Member) {
	for _, m := range ranks {
		m.Server = podmeta.Server{Attempt: m.Bound.Record.SwapKey(), Group: ranks[0].Bound.Record.SwapKey(), Entry: "10.0.0.9:20007"}
	}
}

// in puts a rank in the phase of its swap. Its instance is not there yet.
func (m *Member) in(phase string) {
	m.Bound.Swap, m.Bound.Instance = dualpods.RankSwap{ID: "swap-" + m.name(), Phase: phase}, nil
}

func both(so func(*Member)) func(entry, worker *Member) {
	return func(entry, worker *Member) { so(entry); so(worker) }
}

// staysEnded has the record of a rank say that its instance has ended, and is not started again.
func staysEnded(m *Member) {
	m.Pod.Is.Annotations[podmeta.AnnotationOnExit], m.Bound.Record.Kept = string(podmeta.OnExitKeep), "was deleted"
}

func TestEachRowOfRanks(t *testing.T) {
	absent := func(m *Member) { m.Bound.Instance = nil }
	untold := func(m *Member) { m.Server, m.Bound.Instance = podmeta.Server{}, nil }
	prepared := func(m *Member) { m.in(launcherapi.PhaseGo) }
	healthy := func(m *Member) { m.in(launcherapi.PhaseCommit); m.Bound.Instance = instance("awake", m.pod) }
	asleep := func(m *Member) { m.Server, m.Bound.Instance = podmeta.Server{}, instance("sleeping", m.pod) }
	restarted := func(m *Member) {
		m.Bound.Launcher.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: podmeta.ServingContainer, RestartCount: 1}}
	}
	leaves := func(m *Member) { deleted(m.Pod.Is) }
	failed := func(m *Member) { m.Bound.Instance.State = "failed" }
	for name, c := range map[string]struct {
		so    func(entry, worker *Member)
		row   string
		do    Action
		ranks []int // that are ordered it
		says  string
	}{
		"they serve":                                    {func(_, _ *Member) {}, "ranks serve", "", nil, ""},
		"the worker is changed in place":                {func(_, w *Member) { failed(w); w.Bound.Record.Change = &podmeta.Change{To: "r.1"} }, "ranks are changed", "", nil, ""},
		"the worker leaves in the middle of its change": {func(_, w *Member) { leaves(w); w.Bound.Record.Change = &podmeta.Change{To: "r.1"} }, "rank lost", Stop, []int{0, 1}, ""},
		"the entry is not bound":                        {func(e, w *Member) { e.Bound = nil; untold(w) }, "rank not bound", "", nil, "until Pod llama-0-prefill-0-0 is bound"},
		"the worker's Pod is not there":                 {func(e, w *Member) { untold(e); w.Pod.Is, w.Bound = nil, nil }, "rank not bound", "", nil, "until Pod llama-0-prefill-0-1 is bound"},
		"the worker leaves, the entry waits":            {func(e, w *Member) { untold(e); leaves(w) }, "rank not bound", "", nil, ""},
		"a launcher is silent":                          {func(e, w *Member) { untold(e); untold(w); w.Bound.Known = false }, "launcher silent", "", nil, "the launcher of Pod llama-0-prefill-0-1 does not answer"},
		"the worker failed a moment ago": {func(e, w *Member) {
			untold(e)
			untold(w)
			w.Bound.Record.RetryAt = now.Add(time.Minute)
			w.Bound.Record.Failure = "it ended"
		}, "rank backs off", "", nil, "the start of Pod llama-0-prefill-0-1 failed: it ended; the next try is at " + now.Add(time.Minute).UTC().Format(time.RFC3339)},
		"both are bound":                                        {both(untold), "rank not told", Tell, []int{0, 1}, ""},
		"something else is in the worker's way":                 {func(e, w *Member) { untold(e); untold(w); w.IsReady = false }, "rank not ready", "", nil, "something is in the way of Pod llama-0-prefill-0-1"},
		"the entry is told by another address":                  {func(e, w *Member) { prepared(e); prepared(w); e.Server.Entry = "10.0.0.9:20015" }, "rank lost", Stop, []int{0, 1}, ""},
		"the worker has made its next attempt":                  {func(e, w *Member) { prepared(e); absent(w); w.Bound.Record.Attempt++ }, "rank not told", Tell, []int{1}, ""},
		"both sleep":                                            {both(asleep), "rank not told", Tell, []int{0, 1}, ""},
		"the worker's instance has gone":                        {func(e, w *Member) { asleep(e); untold(w) }, "instance left", Remove, []int{0}, ""},
		"both sleep, and an attempt has failed":                 {func(e, w *Member) { asleep(e); asleep(w); w.Bound.Record.Failures = 1 }, "rank not told", Tell, []int{0, 1}, ""},
		"both sleep, and the attempts of one keep failing":      {func(e, w *Member) { asleep(e); asleep(w); w.Bound.Record.Failures = 2 }, "instance left", Remove, []int{0, 1}, ""},
		"both are gone, and the attempts of one keep failing":   {func(e, w *Member) { untold(e); untold(w); w.Bound.Record.Failures = 2 }, "rank not told", Tell, []int{0, 1}, ""},
		"they slept in other servers":                           {func(e, w *Member) { asleep(e); asleep(w); w.Bound.Instance.Rank.Group = "h" }, "instance left", Remove, []int{0, 1}, ""},
		"an instance there is no rank":                          {func(e, w *Member) { asleep(e); asleep(w); w.Bound.Instance.Rank = nil }, "instance left", Remove, []int{0, 1}, ""},
		"both were told":                                        {both(absent), "ranks start", "", nil, "Pod llama-0-prefill-0-0 does not serve yet"},
		"the worker's swap waits its turn":                      {func(e, w *Member) { prepared(e); w.in(launcherapi.PhaseAdmit) }, "ranks start", "", nil, ""},
		"both have prepared":                                    {both(prepared), "all prepared", Go, []int{0, 1}, ""},
		"the entry has begun already":                           {func(e, w *Member) { e.in(launcherapi.PhaseDrain); prepared(w) }, "all prepared", Go, []int{1}, ""},
		"the entry loads":                                       {func(e, w *Member) { e.in(launcherapi.PhaseHealthy); healthy(w) }, "ranks start", "", nil, ""},
		"both are healthy":                                      {both(healthy), "all healthy", Commit, []int{0, 1}, ""},
		"the worker was committed before":                       {func(e, _ *Member) { healthy(e) }, "all healthy", Commit, []int{0}, ""},
		"the commit is not over":                                {func(e, w *Member) { e.in(launcherapi.PhaseOpen); e.Bound.Instance = instance("awake", 0); _ = w }, "ranks start", "", nil, ""},
		"the swap is not heard":                                 {func(e, _ *Member) { e.Bound.Instance.SwapID = "swap-1" }, "ranks start", "", nil, ""},
		"the worker has ended":                                  {func(_, w *Member) { failed(w) }, "rank lost", Stop, []int{0}, "rank llama-0-prefill-0-1 of its server has ended"},
		"the entry has ended":                                   {func(e, _ *Member) { failed(e) }, "rank lost", Stop, []int{1}, "rank llama-0-prefill-0-0 of its server has ended"},
		"the worker stays ended":                                {func(_, w *Member) { absent(w); staysEnded(w) }, "rank lost", Stop, []int{0}, "rank llama-0-prefill-0-1 of its server has ended"},
		"the worker stays ended, and the entry is another one":  {func(e, w *Member) { absent(e); absent(w); staysEnded(w); e.Bound.Record.Attempt++ }, "rank ended, kept", "", nil, "the server of Pod llama-0-prefill-0-1 has ended, and nothing restarts it"},
		"both have ended":                                       {both(failed), "ranks start", "", nil, ""},
		"the worker's swap is undone as the entry has prepared": {func(e, w *Member) { prepared(e); w.in(launcherapi.PhaseUndo) }, "rank lost", Stop, []int{0}, ""},
		"both are undone":                                       {both(func(m *Member) { m.in(launcherapi.PhaseUndo) }), "ranks start", "", nil, ""},
		"the worker starts again as the entry is healthy":       {func(e, w *Member) { healthy(e); prepared(w) }, "rank lost", Stop, []int{0, 1}, ""},
		"the worker starts again as the entry is awake, and its swap is not heard yet": {func(e, w *Member) { healthy(e); e.Bound.Swap.Phase = launcherapi.PhaseStart; prepared(w) }, "rank lost", Stop, []int{0, 1}, ""},
		"the worker starts again as the entry serves":                                  {func(_, w *Member) { prepared(w) }, "rank lost", Stop, []int{0, 1}, ""},
		"a worker that sleeps has prepared as the entry is healthy":                    {func(e, w *Member) { healthy(e); w.in(launcherapi.PhaseGo); w.Bound.Instance = instance("sleeping", 1) }, "all prepared", Go, []int{1}, ""},
		"the worker has prepared again in another container":                           {func(e, w *Member) { e.in(launcherapi.PhaseStart); prepared(w); restarted(w) }, "rank lost", Stop, []int{0, 1}, "rank llama-0-prefill-0-1 of its server has ended"},
		"the entry has prepared again in another container":                            {func(e, w *Member) { prepared(e); restarted(e); healthy(w) }, "rank lost", Stop, []int{0, 1}, ""},
		"both serve, and are told of another container":                                {both(restarted), "ranks serve", "", nil, ""},
		"the worker was created for three ranks":                                       {func(e, w *Member) { prepared(e); prepared(w); w.Pod.Is.Annotations[podmeta.AnnotationRank] = "1/3" }, "rank of another size", "", nil, "the Pods of the server of Pod llama-0-prefill-0-0 were created for another number of ranks"},
		"they serve, and there is to be a third":                                       {func(_, w *Member) { w.Pod.Is.Annotations[podmeta.AnnotationRank] = "1/3"; failed(w) }, "rank of another size", "", nil, ""},
		"the worker leaves, which was created for three ranks":                         {func(_, w *Member) { w.Pod.Is.Annotations[podmeta.AnnotationRank] = "1/3"; leaves(w) }, "rank lost", Stop, []int{0, 1}, ""},
		"the worker leaves":                                        {func(_, w *Member) { leaves(w) }, "rank lost", Stop, []int{0, 1}, ""},
		"the worker leaves, and sleeps already":                    {func(_, w *Member) { asleep(w); leaves(w) }, "rank lost", Stop, []int{0}, ""},
		"both leave":                                               {both(leaves), "rank not bound", "", nil, ""},
		"the worker leaves as the entry has prepared":              {func(e, w *Member) { prepared(e); leaves(w) }, "rank lost", Stop, []int{0, 1}, ""},
		"the worker failed as the entry loads":                     {func(e, w *Member) { e.in(launcherapi.PhaseHealthy); absent(w); w.Bound.Record.Attempt++ }, "rank lost", Stop, []int{0}, ""},
		"the entry has made its next attempt":                      {func(e, w *Member) { absent(e); e.Bound.Record.Attempt++; prepared(w) }, "rank lost", Stop, []int{1}, ""},
		"the worker has ended, and the entry's launcher is silent": {func(e, w *Member) { failed(w); e.Bound.Known = false }, "rank lost", Stop, []int{0}, ""},
		"the launcher of a worker that serves is silent":           {func(_, w *Member) { w.Bound.Known = false; absent(w) }, "ranks serve", "", nil, ""},
		"the launcher of a worker that starts is silent":           {func(_, w *Member) { w.Bound.Known, w.Pod.Is.Status.Conditions = false, nil; absent(w) }, "launcher silent", "", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := pair()
			c.so(w.Members[0], w.Members[1])
			servers := w.servers()
			require.Len(t, servers, 1)
			step := servers[0].decide()
			assert.Equal(t, []string{c.row, string(c.do)}, []string{step.Row, string(step.Do)}, step.Why)
			var ordered []int
			for _, m := range step.Ranks {
				ordered = append(ordered, m.pod)
			}
			assert.Equal(t, c.ranks, ordered)
			assert.Contains(t, step.Why, c.says)
			if c.row != "ranks serve" && c.row != "ranks are changed" {
				assert.Equal(t, []string{string(v1alpha1.GroupProgressing), v1alpha1.ReasonWaitsForRanks}, []string{string(step.State), step.Reason})
				assert.NotEmpty(t, step.Why)
			}
		})
	}
}

func TestServerStartsAgainOnceAPodOfItIsMadeAgain(t *testing.T) {
	w := pair()
	w.Serving.Spec.RecoveryPolicy = v1alpha1.RecoverNone
	rows := func() (rows []string) {
		for _, s := range Decide(w) {
			if s.Of != nil && slices.ContainsFunc(pods, func(r rule) bool { return r.row == s.Row }) {
				rows = append(rows, s.Row+"/"+string(s.Do))
			}
		}
		return rows
	}
	for _, m := range w.Members {
		staysEnded(m)
		m.Bound.Instance = nil
		m.Pod.Is.Annotations[podmeta.AnnotationServer] = m.Server.Encode()
	}
	assert.Equal(t, []string{"server ended, kept/", "server ended, kept/"}, rows())
	worker := w.Members[1]
	worker.Pod.Is = w.newPod(worker.place)
	worker.Bound, worker.Server = nil, podmeta.Server{}
	assert.Equal(t, []string{"rank made again/delete", "Pod not ready/"}, rows())
	deleted(worker.Pod.Is)
	assert.Equal(t, []string{"server ended, kept/", "Pod being deleted/"}, rows())
}
