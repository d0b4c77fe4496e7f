package groups

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// patched returns a template of a requester with a server patch.
func patched(patch string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(strings.Replace(requesterEntry, "spec: {}", patch, 1))}
}

const (
	oldPatch = `spec: {containers: [{name: inference-server, image: vllm, command: [vllm, serve, org/a], ports: [{containerPort: 8000}]}]}`
	newPatch = `spec: {containers: [{name: inference-server, image: vllm, command: [vllm, serve, org/b], ports: [{containerPort: 8000}]}]}`
)

// changeWorld returns a World of one group of two prefill servers, a decode server and a router, that
// run by the old template. The template has another model for prefill. state is what the status has of
// the change; nil: nothing.
func changeWorld(state v1alpha1.ChangeState, so func(*World, []*Member)) *World {
	role := func(name string, replicas int32, template *runtime.RawExtension) v1alpha1.ServingRole {
		return v1alpha1.ServingRole{Name: name, Replicas: &replicas, EntryTemplate: template}
	}
	roles := []v1alpha1.ServingRole{role("prefill", 2, patched(oldPatch)), role("decode", 1, patched(oldPatch)), role("router", 1, router("r"))}
	return changeWorldOf(roles, func(r *v1alpha1.ServingRole) { r.EntryTemplate = patched(newPatch) }, state, so)
}

// changeWorldOf returns such a World of other roles. change changes the first of them.
func changeWorldOf(roles []v1alpha1.ServingRole, change func(*v1alpha1.ServingRole), state v1alpha1.ChangeState, so func(*World, []*Member)) *World {
	serving := llama()
	serving.Spec.UpdateMode, serving.Spec.Template.Roles = v1alpha1.UpdateInPlace, roles
	old := &World{Serving: serving.DeepCopy(), Revision: hash(content(&serving.Spec.Template))}
	serving.Status.CurrentRevision = old.Revision
	change(&serving.Spec.Template.Roles[0])
	w := &World{Now: now, Serving: serving, Revision: hash(content(&serving.Spec.Template)), plans: map[string]*plan{}}
	before, _ := newPlan(old.Revision, &old.Serving.Spec.Template, "requester")
	after, _ := newPlan(w.Revision, &serving.Spec.Template, "requester")
	w.plans[old.Revision], w.plans[w.Revision] = before, after
	w.Revisions = []*appsv1.ControllerRevision{old.newRevision(), w.newRevision()}
	if state != "" {
		change := &v1alpha1.ServingGroupChange{Revision: w.Revision, State: state, Since: metav1.NewTime(now), Try: 1}
		serving.Status.Groups = []v1alpha1.ServingGroupStatus{{Name: "llama-0", Change: change}}
	}
	w.groups = []*plan{before}
	var members []*Member
	for _, p := range before.placesOf("llama", 0) {
		m := &Member{place: p, Wanted: true}
		m.Pod.Is = w.newPod(p)
		m.Pod.Is.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if p.role != "router" {
			record := &podmeta.Binding{Instance: "old", RequesterUID: "uid", Attempt: 1, Since: now}
			m.Bound = &Bound{Launcher: launcherPod(), Record: record, Known: true, Instance: &launcherapi.Instance{InstanceID: "old", State: "awake"}}
		}
		members = append(members, m)
	}
	so(w, members)
	w.decidedPlans(members)
	return w
}

// decidedPlans chooses the revision of the group, and has the World have the members that it wants.
func (w *World) decidedPlans(members []*Member) {
	there := map[string]*Member{}
	for _, m := range members {
		there[m.name()] = m
	}
	w.chooseRevisions(there)
	w.Members = nil
	for _, p := range w.wantedPlaces() {
		m := there[p.name()]
		if m == nil {
			m = &Member{}
		}
		m.place, m.Wanted = p, true
		w.Members = append(w.Members, m)
	}
}

// toldNow has a requester be told of the change, and its record have it.
func (m *Member) toldNow(w *World) {
	m.SwapTo = podmeta.SwapTo{Revision: w.Revision, Try: 1}
	m.Pod.Is.Annotations[podmeta.AnnotationSwapTo] = m.SwapTo.Encode()
	m.Bound.Record.Change = &podmeta.Change{To: m.SwapTo.ID(), Instance: "new"}
}

// changesIn has the swap of a requester be in a phase.
func (m *Member) changesIn(w *World, phase string) {
	m.toldNow(w)
	m.Bound.Next = dualpods.RankSwap{ID: "swap-" + m.name(), Phase: phase}
}

func (m *Member) changedNow(w *World) {
	m.toldNow(w)
	m.Bound.Record.Change, m.Bound.Record.ChangedBy = nil, m.SwapTo.ID()
}

func (m *Member) changeFails(w *World) {
	m.toldNow(w)
	m.Bound.Record.Change.Failure = "the engine ended"
}

// forgetOld has the ControllerRevision of the old template be gone.
func forgetOld(w *World) { delete(w.plans, w.Serving.Status.CurrentRevision) }

func TestEachRowOfChanges(t *testing.T) {
	const begun, committed, undoing, undone = v1alpha1.ChangeBegun, v1alpha1.ChangeCommitted, v1alpha1.ChangeUndoing, v1alpha1.ChangeUndone
	phases := func(first, second string) func(w *World, m []*Member) {
		return func(w *World, m []*Member) { m[0].changesIn(w, first); m[1].changesIn(w, second) }
	}
	unready := func(m *Member) { m.Pod.Is.Status.Conditions = nil }
	for name, c := range map[string]struct {
		state v1alpha1.ChangeState // before
		so    func(w *World, m []*Member)
		row   string // empty: the group is not changed in place
		do    Action
		of    []string // Pods that are ordered something, or written
		next  v1alpha1.ChangeState
		says  string
	}{
		"a group that runs": {"", func(*World, []*Member) {}, "change begins", "", nil, begun, ""},
		"a group with other numbers than the template": {"", func(w *World, _ []*Member) {
			current := w.Serving.Status.CurrentRevision
			w.plans[current].template.Roles[0].Replicas = new(int32(0)) // a RoleScaler has the number
			w.Serving.Status.Groups = []v1alpha1.ServingGroupStatus{{Name: "llama-0", Revision: current, RoleReplicas: map[string]int32{"prefill": 2, "decode": 1, "router": 1}}}
		}, "change begins", "", nil, begun, ""},
		"a group that does not run":                  {"", func(_ *World, m []*Member) { unready(m[0]) }, "", "", nil, "", ""},
		"the mode is Recreate":                       {"", func(w *World, _ []*Member) { w.Serving.Spec.UpdateMode = "" }, "", "", nil, "", ""},
		"nobody is told":                             {begun, func(*World, []*Member) {}, "server not told", Patch, []string{"prefill-0", "prefill-1"}, begun, "prepare"},
		"one is not told":                            {begun, func(w *World, m []*Member) { m[0].toldNow(w) }, "server not told", Patch, []string{"prefill-1"}, begun, ""},
		"one is told of an earlier try":              {begun, func(w *World, m []*Member) { m[0].toldNow(w); m[1].toldNow(w); m[1].SwapTo.Try = 7 }, "server not told", Patch, []string{"prefill-1"}, begun, ""},
		"it was undone, and one is told of it still": {undone, func(w *World, m []*Member) { m[0].toldNow(w) }, "not undone after all", "", nil, undoing, ""},
		"both prepare":                               {begun, phases("admit", "admit"), "changes", "", nil, begun, "of 2 servers 0 have prepared"},
		"one has prepared":                           {begun, phases("go", "admit"), "changes", "", nil, begun, "1 have prepared"},
		"both have prepared":                         {begun, phases("go", "go"), "all prepared to change", Go, []string{"prefill-0", "prefill-1"}, begun, ""},
		"both have prepared, and one has gone on":    {begun, phases("wake", "go"), "all prepared to change", Go, []string{"prefill-1"}, begun, ""},
		"one has prepared, and its clients still come": {begun, func(w *World, m []*Member) {
			phases("go", "go")(w, m)
			m[1].Pod.Is.Annotations[podmeta.AnnotationStatus] = `{"state":"Serving"}`
		}, "changes", "", nil, begun, ""},
		"one has prepared, and its gate is open": {begun, func(w *World, m []*Member) {
			phases("go", "go")(w, m)
			m[1].Pod.Is.Status.Conditions = append(m[1].Pod.Is.Status.Conditions, corev1.PodCondition{Type: podmeta.ReadinessGate, Status: corev1.ConditionTrue})
		}, "changes", "", nil, begun, ""},
		"one is healthy":                     {begun, phases("commit", "start"), "changes", "", nil, begun, "1 of the new models are healthy"},
		"both are healthy":                   {begun, phases("commit", "commit"), "all changed", "", nil, committed, ""},
		"one is healthy, one had it already": {begun, func(w *World, m []*Member) { m[0].changesIn(w, "commit"); m[1].changedNow(w) }, "all changed", "", nil, committed, ""},
		"one fails":                          {begun, func(w *World, m []*Member) { m[0].changesIn(w, "commit"); m[1].changeFails(w) }, "server lost", "", nil, undoing, "the new model of Pod llama-0-prefill-1-0 failed: the engine ended"},
		"one was refused": {begun, func(w *World, m []*Member) {
			m[0].changesIn(w, "go")
			m[1].changeFails(w)
			m[1].Bound.Record.Change.Misfit = true
		}, "server lost", "", nil, undoing, ""},
		"one has failed in an earlier try": {begun, func(w *World, m []*Member) {
			m[0].changesIn(w, "go")
			m[1].changeFails(w)
			m[1].Bound.Record.Change.To = "r.7"
		}, "changes", "", nil, begun, ""},
		"one is deleted":               {begun, func(w *World, m []*Member) { phases("commit", "commit")(w, m); deleted(m[0].Pod.Is) }, "server lost", "", nil, undoing, "Pod llama-0-prefill-0-0 has lost its server"},
		"one has lost its record":      {begun, func(w *World, m []*Member) { phases("commit", "commit")(w, m); m[0].Bound = nil }, "server lost", "", nil, undoing, ""},
		"the decode server is deleted": {begun, func(w *World, m []*Member) { phases("go", "admit")(w, m); deleted(m[2].Pod.Is) }, "changes", "", nil, begun, ""},
		"the template is changed again": {begun, func(w *World, m []*Member) {
			phases("commit", "commit")(w, m)
			w.Serving.Status.Groups[0].Change.Revision = "r"
		}, "template changed again", "", nil, undoing, ""},
		"it takes too long": {begun, func(w *World, m []*Member) { phases("go", "admit")(w, m); w.Now = now.Add(changeLimit) }, "too late", "", nil, undoing, "not all new models were healthy within 15m"},
		"committed":         {committed, phases("commit", "open"), "commit", Commit, []string{"prefill-0"}, committed, ""},
		"committed, and the swap is known by the old": {committed, func(w *World, m []*Member) { m[0].toldNow(w); m[0].Bound.Instance.SwapID = "swap-9" }, "commit", Commit, []string{"prefill-0"}, committed, ""},
		"committed, and all commits were said":        {committed, phases("open", "open"), "committed", "", nil, committed, ""},
		"committed, and one has failed":               {committed, func(w *World, m []*Member) { m[0].changesIn(w, "commit"); m[1].changeFails(w) }, "lost after the commit", Patch, []string{"prefill-1"}, committed, ""},
		"the same, told so":                           {committed, func(w *World, m []*Member) { m[0].changedNow(w); m[1].changeFails(w); m[1].SwapTo.Forward = true }, "committed", "", nil, committed, ""},
		"committed, and the template changed again": {committed, func(w *World, m []*Member) {
			phases("commit", "commit")(w, m)
			w.Serving.Spec.Template.Roles[2].EntryTemplate = router("s")
			w.Revision = hash(content(&w.Serving.Spec.Template))
			w.plans[w.Revision], _ = newPlan(w.Revision, &w.Serving.Spec.Template, "")
		}, "commit", Commit, []string{"prefill-0", "prefill-1"}, committed, ""},
		"committed, and all Pods have their labels": {committed, func(w *World, m []*Member) {
			for _, m := range m {
				m.Pod.Is.Labels[podmeta.LabelServingRevision] = w.Revision
			}
		}, "change over", "", nil, "", ""},
		"committed, and a launcher does not answer": {committed, func(w *World, m []*Member) { phases("open", "open")(w, m); m[0].Bound.Known = false }, "committed", "", nil, committed,
			"; Pod llama-0-prefill-0-0 waits for launcher launcher, which does not answer, and is created again at " + now.Add(changeLimit).UTC().Format(time.RFC3339)},
		"the same for 15 minutes": {committed, func(w *World, m []*Member) {
			phases("open", "open")(w, m)
			for _, m := range m[1:] {
				m.SwapTo, m.Pod.Is.Labels[podmeta.LabelServingRevision] = podmeta.SwapTo{}, w.Revision
			}
			w.Now = now.Add(changeLimit)
		}, "launcher late", Delete, []string{"prefill-0"}, committed, "within 15m"},
		"committed, and nobody knows its template": {committed, func(w *World, m []*Member) {
			phases("commit", "open")(w, m)
			m[3].Pod.Is.Labels[podmeta.LabelServingRevision] = "r"
			w.Serving.Status.Groups[0].Change.Revision = "r"
		}, "template lost", Delete, []string{"decode-0", "prefill-0", "prefill-1"}, committed, "ControllerRevision llama-r"},
		"it is changed, and nobody knows the old template":                {begun, func(w *World, m []*Member) { phases("go", "go")(w, m); forgetOld(w) }, "server lost", "", nil, undoing, "which had the old template, is gone"},
		"it is undone, one is told, and nobody knows the old template":    {undoing, func(w *World, m []*Member) { m[0].changesIn(w, "commit"); forgetOld(w) }, "template lost", Delete, []string{"prefill-0"}, undoing, ""},
		"it is undone, nobody is told, and nobody knows the old template": {undoing, func(w *World, m []*Member) { m[0].changesIn(w, "undo"); m[0].SwapTo = podmeta.SwapTo{}; forgetOld(w) }, "undoing", "", nil, undoing, ""},
		"it is undone, and a launcher does not answer": {undoing, func(w *World, m []*Member) {
			m[0].changesIn(w, "undo")
			m[0].SwapTo, m[0].Bound.Known = podmeta.SwapTo{}, false
		}, "undoing", "", nil, undoing, "the old models are woken; Pod llama-0-prefill-0-0 waits for launcher launcher, which does not answer"},
		"it has been undone for 15 minutes": {undoing, func(w *World, m []*Member) {
			m[0].changesIn(w, "undo")
			m[0].SwapTo = podmeta.SwapTo{}
			m[1].changesIn(w, "commit")
			w.Now = now.Add(changeLimit)
		}, "launcher late", Delete, []string{"prefill-0", "prefill-1"}, undoing, ""},
		"the same, and the Pods go": {undoing, func(w *World, m []*Member) {
			m[0].changesIn(w, "undo")
			deleted(m[0].Pod.Is)
			w.Now = now.Add(changeLimit)
		}, "undone", "", nil, undone, ""},
		"it is undone, one is told":                 {undoing, func(w *World, m []*Member) { m[0].changesIn(w, "commit") }, "undo", Patch, []string{"prefill-0"}, undoing, ""},
		"it is undone, a swap waits for its commit": {undoing, func(w *World, m []*Member) { m[0].changesIn(w, "commit"); m[0].SwapTo = podmeta.SwapTo{} }, "undo swap", Undo, []string{"prefill-0"}, undoing, ""},
		"it is undone, a swap is known by the old": {undoing, func(w *World, m []*Member) {
			m[0].toldNow(w)
			m[0].Bound.Instance.SwapID, m[0].SwapTo = "swap-9", podmeta.SwapTo{}
		}, "undo swap", Undo, []string{"prefill-0"}, undoing, ""},
		"it is undone, a swap is being undone":                            {undoing, func(w *World, m []*Member) { m[0].changesIn(w, "undo"); m[0].SwapTo = podmeta.SwapTo{} }, "undoing", "", nil, undoing, ""},
		"it is undone, one has the new model":                             {undoing, func(w *World, m []*Member) { m[0].changedNow(w); m[0].SwapTo = podmeta.SwapTo{} }, "has the new model", Delete, []string{"prefill-0"}, undoing, ""},
		"all have the old models":                                         {undoing, func(*World, []*Member) {}, "undone", "", nil, undone, ""},
		"it was undone a moment ago":                                      {undone, func(*World, []*Member) {}, "change backs off", "", nil, undone, ""},
		"it was undone, and does not run":                                 {undone, func(w *World, m []*Member) { w.Now = now.Add(time.Hour); unready(m[0]) }, "change backs off", "", nil, undone, ""},
		"it was undone a minute ago":                                      {undone, func(w *World, _ []*Member) { w.Now = now.Add(firstChangePause) }, "change begins", "", nil, begun, ""},
		"another change was undone":                                       {undone, func(w *World, _ []*Member) { w.Serving.Status.Groups[0].Change.Revision = "r" }, "change begins", "", nil, begun, ""},
		"another change was undone, and the Pods are not ready again yet": {undone, func(w *World, m []*Member) { w.Serving.Status.Groups[0].Change.Revision = "r"; unready(m[0]) }, "change backs off", "", nil, undone, ""},
		"the same, and they do not become so": {undone, func(w *World, m []*Member) {
			w.Serving.Status.Groups[0].Change.Revision, w.Now = "r", now.Add(time.Minute)
			unready(m[0])
		}, "change over", "", nil, "", ""},
		"it was undone, and is not its turn": {undone, func(w *World, _ []*Member) {
			w.Serving.Spec.RolloutStrategy.RollingUpdateConfiguration.Partition = new(intstr.FromInt32(1))
		}, "not in place", "", nil, undone, ""},
		"it was undone, and the mode is Recreate now": {undone, func(w *World, _ []*Member) { w.Serving.Spec.UpdateMode = "" }, "not in place", "", nil, undone, ""},
		"it was refused, and is to be recreated": {undone, func(w *World, _ []*Member) {
			w.Serving.Status.Groups[0].Change.Misfit, w.Serving.Spec.OnMisfit = true, v1alpha1.UpdateRecreate
		}, "not in place", "", nil, undone, ""},
		"it failed, and is to be recreated if refused": {undone, func(w *World, _ []*Member) { w.Serving.Spec.OnMisfit = v1alpha1.UpdateRecreate }, "change backs off", "", nil, undone, ""},
		"it was undone, and the template is gone": {undone, func(w *World, _ []*Member) {
			w.Serving.Status.Groups[0].Change.Revision, w.Serving.Spec.UpdateMode, w.Now = "r", "", now.Add(time.Minute)
		}, "change over", "", nil, "", ""},
		"another change was undone a moment ago, and it is not its turn": {undone, func(w *World, _ []*Member) {
			w.Serving.Status.Groups[0].Change.Revision = "r"
			w.Serving.Spec.RolloutStrategy.RollingUpdateConfiguration.Partition = new(intstr.FromInt32(1))
		}, "not in place", "", nil, undone, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := changeWorld(c.state, c.so)
			steps := w.changeSteps()
			if c.row == "" {
				assert.Empty(t, steps)
				return
			}
			require.NotEmpty(t, steps)
			first := steps[0]
			require.Equal(t, c.row, first.Row)
			var of []string
			for _, m := range first.Ranks {
				of = append(of, m.roleID())
				assert.Equal(t, c.do, first.Do)
			}
			for _, s := range steps[1:] {
				of = append(of, s.Of.roleID())
				assert.Equal(t, c.do, s.Do)
			}
			assert.Equal(t, c.of, of)
			got := v1alpha1.ChangeState("")
			if first.Change != nil {
				got = first.Change.State
			}
			assert.Equal(t, c.next, got)
			says := first.Why
			if first.Change != nil {
				says += first.Change.Message
			}
			assert.Contains(t, says, c.says)
		})
	}
}

func TestGroupKeepsItsPlanUntilTheChangeIsCommitted(t *testing.T) {
	none := func(*World, []*Member) {}
	for state, old := range map[v1alpha1.ChangeState]bool{"": true, v1alpha1.ChangeBegun: true, v1alpha1.ChangeUndoing: true, v1alpha1.ChangeUndone: true, v1alpha1.ChangeCommitted: false} {
		w := changeWorld(state, none)
		assert.Equal(t, old, w.groups[0].revision == w.Serving.Status.CurrentRevision, state)
		for _, s := range Decide(w) {
			assert.True(t, s.Do != Delete || state == v1alpha1.ChangeCommitted, "%s: %s of %s", state, s.Row, s.Of.name())
		}
	}
	w := changeWorld(v1alpha1.ChangeCommitted, none)
	rows := map[string]string{}
	for _, s := range Decide(w) {
		if s.Of != nil && s.Of.Pod.Is != nil && s.Do != "" && !s.Changes {
			rows[s.Of.roleID()] = s.Row
		}
	}
	delete(rows, "")
	assert.Equal(t, "Pod changed in place", rows["decode-0"], "its engine is told the same")
	assert.Equal(t, "Pod changed in place", rows["router-0"])
	assert.Equal(t, "Pod of another revision", rows["prefill-0"], "it was created after the commit was decided, and was not told")

	w = changeWorld(v1alpha1.ChangeCommitted, func(w *World, m []*Member) { m[0].changedNow(w); m[1].changesIn(w, "open") })
	for _, s := range Decide(w) {
		if s.Of != nil && s.Of.role == "prefill" && s.Of.replica == 0 && s.Object != nil && s.Do == Patch {
			assert.Equal(t, w.Revision, s.Object.GetLabels()[podmeta.LabelServingRevision])
			assert.NotContains(t, s.Object.GetAnnotations(), podmeta.AnnotationSwapTo)
		}
		if s.Of != nil && s.Of.roleID() == "prefill-1" && slices.ContainsFunc(pods, func(r rule) bool { return r.row == s.Row }) {
			assert.Equal(t, "Pod being changed", s.Row)
		}
	}
}

func TestChangesTableOfTheDocumentHasTheRowsOfTheCode(t *testing.T) {
	text, err := os.ReadFile("../../../../spec/roles.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "## Changes in place\n")
	require.True(t, found)
	table := regexp.MustCompile(`(?m)^\| row \|.*\n\|-.*\n((?:\|.*\n)+)`).FindStringSubmatch(section)
	require.NotNil(t, table)
	var written, coded []string
	for line := range strings.Lines(table[1]) {
		written = append(written, strings.TrimSpace(strings.Split(line, "|")[1]))
	}
	for _, r := range changes {
		coded = append(coded, r.row)
	}
	assert.Equal(t, coded, written)
	assert.LessOrEqual(t, len(changes), 25)
}
