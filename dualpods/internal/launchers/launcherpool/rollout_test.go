package launcherpool

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestRolloutReplacesNoMoreLaunchersThanItsBudget(t *testing.T) {
	type change = func(*standing)
	old := func(name string, changes ...change) standing {
		s := standing{pod: launcherPod(name, "old", nil), node: "node-of-" + name, outdated: true, ready: true, heard: true}
		for _, c := range changes {
			c(&s)
		}
		return s
	}
	holds := func(n int) change { return func(s *standing) { s.holds = n } }
	unready := func(s *standing) { s.ready = false }
	bound := func(s *standing) { s.bound = true }
	present := func(s *standing) { s.outdated = false }
	closed := func(s *standing) { s.closed = true }
	barred := func(s *standing) { s.barred = true }
	pressured := func(s *standing) { s.pressured = true }
	leaving := func(s *standing) { s.leaving, s.ready = true, false }
	unheard := func(s *standing) { s.heard = false }
	asked := func(s *standing) { s.heard, s.asked = false, true }
	for name, c := range map[string]struct {
		launchers []standing
		missing   int
		budget    int
		replaced  []string
		waiting   int
	}{
		"one after the other, those without sleepers first":                          {[]standing{old("a", holds(2)), old("b"), old("c", holds(1))}, 0, 1, []string{"b"}, 2},
		"two at a time, those with the fewest sleepers first":                        {[]standing{old("a", holds(2)), old("b"), old("c", holds(1))}, 0, 2, []string{"b", "c"}, 1},
		"one that is replaced already counts":                                        {[]standing{old("a", leaving), old("b")}, 0, 1, nil, 1},
		"its successor counts until it is ready":                                     {[]standing{old("a", present, unready), old("b")}, 0, 1, nil, 1},
		"a node whose launcher has no Pod yet counts":                                {[]standing{old("b")}, 1, 1, nil, 1},
		"once the successor is ready, the next one follows":                          {[]standing{old("a", present), old("b")}, 0, 1, []string{"b"}, 0},
		"one with a requester stays, whatever the budget":                            {[]standing{old("a", bound), old("b", bound, unready)}, 0, 9, nil, 0},
		"those that are not ready and hold nothing are replaced at once":             {[]standing{old("a", unready), old("b", unready), old("c", unready)}, 0, 1, []string{"a", "b", "c"}, 0},
		"also if the budget is 0":                                                    {[]standing{old("a", unready), old("b", unready, holds(1)), old("c")}, 0, 0, []string{"a"}, 2},
		"one that is not ready and holds sleepers takes its own place":               {[]standing{old("a", unready, holds(1)), old("b")}, 0, 1, []string{"a"}, 1},
		"several that are not ready and hold sleepers: one after the other":          {[]standing{old("a", unready, holds(1)), old("b", unready, holds(1)), old("c", unready, holds(1))}, 0, 1, []string{"a"}, 2},
		"a node that is down does not count twice, nor let a ready one go":           {[]standing{old("a", present, unready), old("b", unready, holds(1)), old("c")}, 0, 1, nil, 2},
		"one that was never heard comes last":                                        {[]standing{old("a", unheard), old("b", holds(5))}, 0, 1, []string{"b"}, 1},
		"one that may say within moments what it holds is waited for":                {[]standing{old("a", asked), old("b", holds(1))}, 0, 2, []string{"b"}, 1},
		"of two with as many sleepers the one that is not ready comes first":         {[]standing{old("a", holds(1)), old("b", unready, holds(1))}, 0, 1, []string{"b"}, 1},
		"a closed one that is not ready does not count":                              {[]standing{old("a", closed, bound, unready), old("b")}, 0, 1, []string{"b"}, 0},
		"nor does one that moves to another template":                                {[]standing{old("a", closed, bound, unready, present), old("b", unready, holds(1))}, 0, 1, []string{"b"}, 0},
		"nor does a closed one that is being removed":                                {[]standing{old("a", closed, leaving), old("b")}, 0, 1, []string{"b"}, 0},
		"a closed one without requesters is not replaced":                            {[]standing{old("a", closed), old("b", closed, unready), old("c", holds(1))}, 0, 1, []string{"c"}, 0},
		"a barred one stays, and does not count":                                     {[]standing{old("a", barred), old("b", barred, unready), old("c", barred, unready, present), old("d")}, 0, 1, []string{"d"}, 0},
		"a barred one with a requester does not count either":                        {[]standing{old("a", barred, bound, unready), old("b", holds(1))}, 0, 1, []string{"b"}, 0},
		"a barred one that is leaving does not count either":                         {[]standing{old("a", barred, leaving), old("b")}, 0, 1, []string{"b"}, 0},
		"one on a node under pressure stays, and its node counts if it is not ready": {[]standing{old("a", pressured, holds(3)), old("b", pressured, unready, holds(1)), old("c")}, 0, 1, nil, 1},
		"one that is ready and under pressure takes no place":                        {[]standing{old("a", pressured), old("b")}, 0, 1, []string{"b"}, 0},
		"one under pressure that is not ready and holds nothing is replaced":         {[]standing{old("a", pressured, unready)}, 0, 1, []string{"a"}, 0},
		"all at once":              {[]standing{old("a"), old("b", holds(1)), old("c", holds(2))}, 0, 3, []string{"a", "b", "c"}, 0},
		"none is of an old one":    {[]standing{old("a", present), old("b", present, unready)}, 0, 1, nil, 0},
		"there are none":           {nil, 0, 1, nil, 0},
		"its node has two of them": {[]standing{old("a", leaving), func() standing { s := old("new", present); s.node = "node-of-a"; return s }(), old("b")}, 0, 1, []string{"b"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := planRollout(c.launchers, c.missing, c.budget)
			var replaced []string
			for _, s := range r.replace {
				replaced = append(replaced, s.pod.Name)
			}
			assert.Equal(t, c.replaced, replaced)
			assert.Equal(t, c.waiting, r.waiting)
			assert.Equal(t, r.outdated, r.leaving+r.bound+r.waiting+r.kept+r.pressured)
		})
	}
}

func TestBudgetIsANumberOrAShareOfTheNodes(t *testing.T) {
	for _, c := range []struct {
		most  any
		nodes int
		want  int
	}{{nil, 8, 1}, {2, 8, 2}, {0, 8, 0}, {"25%", 8, 2}, {"25%", 9, 3}, {"1%", 8, 1}, {"100%", 8, 8}, {"0%", 8, 0}, {"soon", 8, 1}, {-1, 8, 1}} {
		config := configOf(t, plain)
		switch most := c.most.(type) {
		case int:
			config.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(int32(most)))
		case string:
			config.Spec.Rollout.MaxUnavailable = new(intstr.FromString(most))
		}
		assert.Equal(t, c.want, budgetOf(config, c.nodes), "%v of %d", c.most, c.nodes)
	}
}

func TestLauncherOfADeselectedNodeHidesNoOtherNode(t *testing.T) {
	pool, config := rolling(t, v1alpha1.PerNode, 0, 0, 0)
	key := client.ObjectKeyFromObject(config)
	for _, name := range []string{"node-1", "node-2"} {
		var node corev1.Node
		require.NoError(t, pool.opts.API.Get(t.Context(), client.ObjectKey{Name: name}, &node))
		node.Labels = map[string]string{"pool": "yes"}
		require.NoError(t, pool.opts.API.Update(t.Context(), &node))
	}
	var edited v1alpha1.LauncherConfig
	require.NoError(t, pool.opts.API.Get(t.Context(), key, &edited))
	edited.Spec.Population.NodeSelector = map[string]string{"pool": "yes"}
	edited.Spec.Rollout.MaxUnavailable = new(intstr.FromString("50%"))
	require.NoError(t, pool.opts.API.Update(t.Context(), &edited))
	var bound corev1.Pod
	require.NoError(t, pool.opts.API.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "launcher-0"}, &bound))
	bound.Annotations[podmeta.AnnotationBindingPrefix+"x"] = "{}"
	require.NoError(t, pool.opts.API.Update(t.Context(), &bound))

	pool.look(t, config)
	assert.Equal(t, map[string]string{"node-0": "launcher-0", "node-2": "launcher-2"}, pool.living(t), "50% of the two nodes that are selected")
	pool.look(t, config)
	assert.Len(t, pool.living(t), 2, "node-1 has no launcher yet")
}

func TestLauncherHoldsItsInstancesUnlessItsContainerHasEnded(t *testing.T) {
	runs := func(pod *corev1.Pod) {
		pod.Status.PodIP = "10.1.0.2"
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: podmeta.ServingContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	}
	ended := func(pod *corev1.Pod) {
		runs(pod)
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	}
	some := view("a", "b")
	some.Instances["c"] = launcherapi.Instance{State: "failed"}
	some.Instances["d"] = launcherapi.Instance{State: "awake"}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		view   nodeview.View
		holds  int
		heard  bool
	}{
		"it runs":                  {runs, some, 3, true},
		"it runs and holds none":   {runs, view(), 0, true},
		"it was never heard":       {runs, nodeview.View{}, 0, false},
		"its program does not run": {nil, nodeview.View{}, 0, true},
		"its container has ended":  {ended, some, 0, true},
		"its Pod has ended":        {func(p *corev1.Pod) { runs(p); p.Status.Phase = corev1.PodFailed }, some, 0, true},
	} {
		holds, heard := held(launcherPod("a", "", c.change), c.view)
		assert.Equal(t, c.holds, holds, name)
		assert.Equal(t, c.heard, heard, name)
	}
}

// rolling returns a Pool with a launcher of an earlier template on each of some nodes. They
// are ready, and the views say what they hold.
func rolling(t *testing.T, mode v1alpha1.PopulationMode, sleepers ...int) (*Pool, *v1alpha1.LauncherConfig) {
	t.Helper()
	var there []client.Object
	pool, config, _ := poolOf(t, mode)
	views, own := said{}, ownedBy(config)
	for n, asleep := range sleepers {
		pod := marked(fmt.Sprint("launcher-", n), &own)
		pod.Spec.NodeName = fmt.Sprint("node-", n)
		makeReady(pod)
		views[string(pod.UID)] = view(many(asleep)...)
		there = append(there, pod)
		if n > 0 {
			there = append(there, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pod.Spec.NodeName}})
		}
	}
	for _, o := range there {
		require.NoError(t, pool.opts.API.Create(t.Context(), o))
	}
	pool.opts.Views = views
	return pool, config
}

func makeReady(pod *corev1.Pod) {
	isReady(pod)
	pod.Status.PodIP = "10.1.0.2"
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: podmeta.ServingContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

// living returns the launchers that are left, by node: the names of their Pods.
func (p *Pool) living(t *testing.T) map[string]string {
	t.Helper()
	var left corev1.PodList
	require.NoError(t, p.opts.API.List(t.Context(), &left, client.UnsafeDisableDeepCopy))
	names := map[string]string{}
	for i := range left.Items {
		names[NodeOf(&left.Items[i])] = left.Items[i].Name
	}
	return names
}

func (p *Pool) upToDate(t *testing.T, config *v1alpha1.LauncherConfig) *metav1.Condition {
	t.Helper()
	p.look(t, config)
	var now v1alpha1.LauncherConfig
	require.NoError(t, p.opts.API.Get(t.Context(), client.ObjectKeyFromObject(config), &now))
	return meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionUpToDate)
}

func TestEditedTemplateReplacesOneLauncherAfterTheOther(t *testing.T) {
	pool, config := rolling(t, v1alpha1.PerNode, 1, 0, 2)
	told := pool.upToDate(t, config)
	assert.Equal(t, map[string]string{"node-0": "launcher-0", "node-2": "launcher-2"}, pool.living(t), "the one without sleepers is replaced first")
	assert.Equal(t, v1alpha1.ReasonRollingOut, told.Reason)
	assert.Equal(t, "launchers of an earlier template: 3 of 3; being replaced: 1; waiting: 2 (nodes without a ready launcher: 1; spec.rollout.maxUnavailable allows 1)", told.Message)
	for range 3 {
		pool.look(t, config)
		assert.Len(t, pool.living(t), 2, "its successor is not there yet")
	}
	next := func(node string) {
		var set appsv1.DaemonSet
		require.NoError(t, pool.opts.API.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "vllm-launcher"}, &set))
		own := ownedBy(config)
		pod := marked("new-"+node, &own)
		pod.Spec.NodeName, pod.Annotations[podmeta.AnnotationTemplateHash] = node, set.Spec.Template.Annotations[podmeta.AnnotationTemplateHash]
		require.NoError(t, pool.opts.API.Create(t.Context(), pod))
		pool.look(t, config)
		assert.Len(t, pool.living(t), 3, "its successor is not ready yet")
		makeReady(pod)
		require.NoError(t, pool.opts.API.Status().Update(t.Context(), pod))
	}
	next("node-1")
	pool.look(t, config)
	assert.Equal(t, map[string]string{"node-1": "new-node-1", "node-2": "launcher-2"}, pool.living(t), "the one with fewer sleepers is next")
	next("node-0")
	pool.look(t, config)
	next("node-2")
	told = pool.upToDate(t, config)
	assert.Equal(t, metav1.ConditionTrue, told.Status, told.Message)
}

func TestReplacedLauncherOnDemandIsMadeAgain(t *testing.T) {
	pool, config := rolling(t, v1alpha1.OnDemand, 1, 1)
	pool.look(t, config)
	assert.Equal(t, map[string]string{"node-1": "launcher-1"}, pool.living(t))
	pool.look(t, config)
	made := podName("vllm", "node-0")
	assert.Equal(t, map[string]string{"node-0": made, "node-1": "launcher-1"}, pool.living(t), "its successor comes, and the other one waits for it")
	pool.look(t, config)
	assert.Len(t, pool.living(t), 2)
	var pod corev1.Pod
	require.NoError(t, pool.opts.API.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: made}, &pod))
	makeReady(&pod)
	require.NoError(t, pool.opts.API.Status().Update(t.Context(), &pod))
	pool.look(t, config)
	assert.Equal(t, map[string]string{"node-0": made}, pool.living(t))
	pool.replaced.forgetConfig(client.ObjectKeyFromObject(config))
	pool.look(t, config)
	assert.Len(t, pool.living(t), 1, "a controller that is started again leaves it to the next requester")
}

// deletions is an API that counts what is deleted. Its cache shows deleted Pods for as long as
// they are in stale.
type deletions struct {
	client.Client
	stale   *corev1.PodList
	deleted map[string]int
}

func (d *deletions) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	d.deleted[o.GetName()]++
	return d.Client.Delete(ctx, o, opts...)
}

func (d *deletions) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	if pods, ok := into.(*corev1.PodList); ok && d.stale != nil {
		*pods = *d.stale
		return nil
	}
	return d.Client.List(ctx, into, opts...)
}

func TestIdleLauncherOfAnEarlierTemplateIsRemovedOnlyOnce(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){"it is ready": makeReady, "it has ended": func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }} {
		pool, config := rolling(t, v1alpha1.OnDemand, 0)
		var edited v1alpha1.LauncherConfig
		require.NoError(t, pool.opts.API.Get(t.Context(), client.ObjectKeyFromObject(config), &edited))
		edited.Spec.Population.IdleTimeout = &metav1.Duration{Duration: time.Minute}
		require.NoError(t, pool.opts.API.Update(t.Context(), &edited))
		var pods corev1.PodList
		require.NoError(t, pool.opts.API.List(t.Context(), &pods, client.UnsafeDisableDeepCopy))
		change(&pods.Items[0])
		require.NoError(t, pool.opts.API.Status().Update(t.Context(), &pods.Items[0]))
		api := &deletions{pool.opts.API, &pods, map[string]int{}}
		pool.opts.API = api
		pool.replaced.successors[place{client.ObjectKeyFromObject(config), "node-0"}] = true // it is itself a successor
		for range 2 {
			pool.look(t, config)
			assert.Equal(t, map[string]int{"launcher-0": 1}, api.deleted, name)
		}
		api.stale = nil
		pool.look(t, config)
		assert.Empty(t, pool.living(t), "%s: nobody needs one", name)
	}
}

func TestRolloutWaitsUntilLaunchersHaveSaidWhatTheyHold(t *testing.T) {
	pool, config := rolling(t, v1alpha1.PerNode, 0, 0)
	pool.opts.Views = said{}
	again, _ := pool.look(t, config)
	assert.Len(t, pool.living(t), 2)
	assert.Equal(t, unheardRecheck, again.RequeueAfter)
	pool.replaced.began = time.Now().Add(-dualpods.LauncherPatience)
	pool.look(t, config)
	assert.Len(t, pool.living(t), 1, "one that does not answer for long is replaced")
}

func TestRolloutCountsALauncherThatTheCacheStillShows(t *testing.T) {
	pool, config := rolling(t, v1alpha1.PerNode, 0, 0)
	key := client.ObjectKeyFromObject(config)
	f := &observation{config: config}
	f.template.Annotations = map[string]string{podmeta.AnnotationTemplateHash: "new"}
	var err error
	f.launchers, err = pool.launchers(t.Context(), config)
	require.NoError(t, err)
	pool.replaced.add(f.launchers[0], place{key, "node-0"}, false)
	standings := pool.standings(t.Context(), f)
	assert.Empty(t, planRollout(standings, 0, 1).replace, "it was deleted a moment ago")
	pool.replaced.keep(key, f.launchers[1:])
	assert.False(t, pool.replaced.has(f.launchers[0]), "it is gone")
	assert.Equal(t, []string{"launcher-0"}, []string{planRollout(pool.standings(t.Context(), f), 0, 1).replace[0].pod.Name})
}

func TestConditionSaysHowFarARolloutIs(t *testing.T) {
	slow := &standing{pod: launcherPod("slow", "new", nil), node: "node-of-slow"}
	going := &standing{pod: slow.pod, node: slow.node, leaving: true}
	for name, c := range map[string]struct {
		rollout  *rollout
		problems []podmeta.Problem
		reason   string
		status   metav1.ConditionStatus
		says     string
	}{
		"all are up to date":      {&rollout{budget: 1}, nil, v1alpha1.ReasonUpToDate, metav1.ConditionTrue, ""},
		"some are replaced":       {&rollout{budget: 2, outdated: 2, leaving: 2}, nil, v1alpha1.ReasonRollingOut, metav1.ConditionFalse, "launchers of an earlier template: 2 of 1; being replaced: 2"},
		"one is not ready":        {&rollout{budget: 1, outdated: 1, waiting: 1, unavailable: 1, notReady: slow}, nil, v1alpha1.ReasonRollingOut, metav1.ConditionFalse, "launchers of an earlier template: 1 of 1; waiting: 1 (nodes without a ready launcher: 1; spec.rollout.maxUnavailable allows 1); slow on node node-of-slow is starting"},
		"one is being deleted":    {&rollout{budget: 1, outdated: 1, waiting: 1, unavailable: 1, notReady: going}, nil, v1alpha1.ReasonRollingOut, metav1.ConditionFalse, "launchers of an earlier template: 1 of 1; waiting: 1 (nodes without a ready launcher: 1; spec.rollout.maxUnavailable allows 1); slow on node node-of-slow is being deleted"},
		"a node has none":         {&rollout{budget: 1, outdated: 1, waiting: 1, unavailable: 1, missing: "new"}, nil, v1alpha1.ReasonRollingOut, metav1.ConditionFalse, "launchers of an earlier template: 1 of 1; waiting: 1 (nodes without a ready launcher: 1; spec.rollout.maxUnavailable allows 1); node new has no launcher yet"},
		"the others are used":     {&rollout{budget: 1, outdated: 3, bound: 3}, nil, v1alpha1.ReasonInUse, metav1.ConditionFalse, "launchers of an earlier template: 3 of 1; to be replaced once no requester is bound: 3"},
		"nodes have taints":       {&rollout{budget: 1, outdated: 2, kept: 2}, nil, v1alpha1.ReasonNodesTainted, metav1.ConditionFalse, "launchers of an earlier template: 2 of 1; kept: 2, because new launchers do not tolerate the taints of their nodes; remove the taints, tolerate them in spec.podTemplate or the ModelCacheNodeGroup, or delete the Pods"},
		"nodes are short of disk": {&rollout{budget: 1, outdated: 1, pressured: 1}, nil, v1alpha1.ReasonNodesTainted, metav1.ConditionFalse, "launchers of an earlier template: 1 of 1; kept: 1, because their nodes are short of memory, disk space or process IDs, and accept no new launcher; relieve the nodes, or delete the Pods"},
		"it is paused":            {&rollout{outdated: 1, waiting: 1}, nil, v1alpha1.ReasonPaused, metav1.ConditionFalse, "launchers of an earlier template: 1 of 1; paused: 1, because spec.rollout.maxUnavailable is 0; raise it, or delete their Pods"},
		"the template is invalid": {nil, []podmeta.Problem{{}}, v1alpha1.ReasonMalformedTemplate, metav1.ConditionUnknown, "no launcher is replaced: the condition Accepted says what to correct"},
	} {
		f := &observation{config: configOf(t, plain), rollout: c.rollout, problems: c.problems, launchers: []*corev1.Pod{slow.pod}}
		got, ok := upToDateCondition(f)
		require.True(t, ok, name)
		assert.Equal(t, []string{c.reason, string(c.status), c.says}, []string{got.Reason, string(got.Status), got.Message}, name)
	}
	_, ok := upToDateCondition(&observation{config: configOf(t, plain)})
	assert.False(t, ok, "the pass failed before it decided")
}

func TestRolloutNamesTheLauncherThatItWaitsFor(t *testing.T) {
	unready := func(name string, change func(*standing)) standing {
		s := standing{pod: launcherPod(name, "new", nil), node: "node-of-" + name, heard: true}
		change(&s)
		return s
	}
	plainly := func(*standing) {}
	barred := func(s *standing) { s.barred = true }
	closed := func(s *standing) { s.closed = true }
	leaving := func(s *standing) { s.leaving = true }
	ready := func(s *standing) { s.ready = true }
	for name, c := range map[string]struct {
		launchers []standing
		named     string
	}{
		"the first by name":                             {[]standing{unready("b", plainly), unready("a", plainly)}, "a"},
		"none whose node does not count":                {[]standing{unready("a", barred), unready("b", closed), unready("c", plainly)}, "c"},
		"one that is being deleted comes last":          {[]standing{unready("a", leaving), unready("b", plainly)}, "b"},
		"one that is being deleted, if it is all":       {[]standing{unready("a", leaving), unready("b", ready)}, "a"},
		"none on a node that has another that is ready": {[]standing{unready("a", leaving), unready("b", func(s *standing) { s.node, s.ready = "node-of-a", true })}, ""},
	} {
		got := planRollout(c.launchers, 0, 1).notReady
		if c.named == "" {
			assert.Nil(t, got, name)
			continue
		}
		require.NotNil(t, got, name)
		assert.Equal(t, c.named, got.pod.Name, name)
	}
}
