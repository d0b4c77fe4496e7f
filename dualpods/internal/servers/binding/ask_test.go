package binding

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/podresourcesapi"
	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// kubelets answer by way of agents, and note what they are asked.
type kubelets struct {
	asked []string // address and name
	pods  []podresourcesapi.Pod
	err   error
}

func (k *kubelets) Pods(_ context.Context, agent nodeview.Target) ([]podresourcesapi.Pod, error) {
	k.asked = append(k.asked, agent.Address+" "+agent.Name)
	return k.pods, k.err
}

func running1(namespace, name string, containers ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)}}
	pod.Status.PodIP = "10.1.0.2"
	for _, c := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		})
	}
	return pod
}

func TestKubeletIsAskedAheadOnlyIfTheSettingIsOn(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "req-5d4f7-x2v9k", GenerateName: "req-5d4f7-"}, Spec: corev1.PodSpec{NodeName: "node-0"}}
	assert.True(t, New(t.Context(), Options{WriteAhead: true}, logr.Discard()).asksAhead(pod))
	assert.False(t, New(t.Context(), Options{}, logr.Discard()).asksAhead(pod))
}

func TestKubeletIsAskedBeforeTheProgramRunsAndOnceMoreWhenItDoes(t *testing.T) {
	a := newAsking(t)
	pod, runs := a.addAhead()
	uid := pod.UID
	a.gave("a", pod.Name, "GPU-1")

	a.pass(t, 0)
	assert.Equal(t, dualpods.Allocation{GPUs: []string{"GPU-1"}, Early: true}, a.w.kubelet[uid])
	a.pass(t, time.Minute)
	assert.Len(t, a.kubelets.asked, 1, "what it has given stays given")

	record := podmeta.Binding{Instance: "i", RequesterUID: uid, Namespace: "a", Name: pod.Name, GPUs: []string{"GPU-1"}, Ahead: true}
	a.w.launchers[0].bindings = []podmeta.Binding{record}
	a.pass(t, time.Second)
	assert.Len(t, a.kubelets.asked, 1)
	pod.Status.ContainerStatuses = runs
	a.kubelets.err = errors.New("refused")
	a.pass(t, time.Second)
	assert.Equal(t, []string{"GPU-1"}, a.w.kubelet[uid].GPUs)
	assert.True(t, a.w.kubelet[uid].Early)
	a.kubelets.err = nil
	a.pass(t, time.Minute)
	assert.Equal(t, dualpods.Allocation{GPUs: []string{"GPU-1"}}, a.w.kubelet[uid])
	a.pass(t, time.Minute)
	assert.Len(t, a.kubelets.asked, 3)
}

func TestKubeletIsAskedAnewWhenTheProgramRunsWhateverItSaidBefore(t *testing.T) {
	a := newAsking(t)
	pod, runs := a.addAhead()
	uid := pod.UID
	a.kubelets.err = errors.New("refused")
	a.pass(t, 0)
	asked := a.w.now
	assert.Equal(t, dualpods.Allocation{Why: "refused", Since: asked, Again: asked.Add(dualpods.AheadAllocationPause)}, a.w.kubelet[uid])
	a.pass(t, time.Minute)
	pod.Status.ContainerStatuses = runs
	a.pass(t, time.Millisecond)
	assert.Equal(t, dualpods.Allocation{Why: "refused", Since: a.w.now, Again: a.w.now.Add(dualpods.FirstAllocationPause)}, a.w.kubelet[uid])
	assert.Len(t, a.kubelets.asked, 3)

	orphan := a.w.launchers[0]
	id := dualpods.IdentityOf(pod)
	assert.NotNil(t, a.c.allocation(a.w, orphan, id))
	orphan.of, orphan.orphan = nil, true
	assert.Nil(t, a.c.allocation(a.w, orphan, id), "no LauncherConfig of an orphan asks for it: the program's word counts")
}

// asking is a controller that asks kubelets, a node with its agent, and a pass over it: two
// namespaces with a launcher and requesters each.
type asking struct {
	kubelets kubelets
	c        *Controller
	n        *nodeWork
	w        *world
}

func newAsking(t *testing.T) *asking {
	a := &asking{}
	a.c = New(t.Context(), Options{Allocations: &a.kubelets, AgentNamespace: "system"}, logr.Discard())
	a.n = a.c.work("node-0")
	agent := running1("system", "agent", podmeta.AgentContainer)
	agent.Status.PodIP = "10.1.0.3"
	a.w = &world{now: now, node: decide.Node{Name: "node-0"}, agents: []*corev1.Pod{agent}, pods: map[types.UID]*corev1.Pod{}, spi: map[types.UID]*decide.SPI{}, kubelet: map[types.UID]dualpods.Allocation{}}
	for _, ns := range []string{"a", "b"} {
		l := &launcherPod{of: &v1alpha1.LauncherConfig{}}
		l.read(running1(ns, "launcher", podmeta.ServingContainer))
		a.w.launchers = append(a.w.launchers, l)
	}
	return a
}

func (a *asking) add(namespace, name string, says ...string) types.UID {
	pod := running1(namespace, name, podmeta.ServingContainer)
	a.w.pods[pod.UID], a.w.spi[pod.UID] = pod, &decide.SPI{GPUs: says}
	return pod.UID
}

// addAhead adds a requester that may be bound before its program runs, and gives what its Pod
// says when that does.
func (a *asking) addAhead() (pod *corev1.Pod, runs []corev1.ContainerStatus) {
	a.c.opts.WriteAhead = true
	pod = a.w.pods[a.add("a", "req-x2v9k")]
	pod.GenerateName, pod.Spec.NodeName = "req-", "node-0"
	runs, pod.Status.ContainerStatuses = pod.Status.ContainerStatuses, nil
	return pod, runs
}

func (a *asking) gave(namespace, name string, gpus ...string) {
	a.kubelets.pods = append(a.kubelets.pods, podresourcesapi.Pod{Namespace: namespace, Name: name, Containers: []podresourcesapi.Container{{
		Name: podmeta.ServingContainer, Devices: map[string][]string{string(podmeta.ResourceGPU): gpus},
	}}})
}

func (a *asking) pass(t *testing.T, later time.Duration) {
	a.w.now = a.w.now.Add(later)
	a.c.askKubelet(t.Context(), a.n, a.w)
}

func TestAgentIsAskedOnceForTheRequestersOfAllNamespaces(t *testing.T) {
	a := newAsking(t)
	one, two, other := a.add("a", "one", "GPU-0"), a.add("a", "two", "GPU-1"), a.add("b", "one", "GPU-2")
	a.gave("a", "one", "GPU-0")
	a.gave("a", "two", "GPU-1")
	a.gave("b", "one", "GPU-2")
	a.pass(t, 0)
	assert.Equal(t, []string{"10.1.0.3:8002 system.agents.hotseat.dev"}, a.kubelets.asked)
	assert.Equal(t, map[types.UID]dualpods.Allocation{one: {GPUs: []string{"GPU-0"}}, two: {GPUs: []string{"GPU-1"}}, other: {GPUs: []string{"GPU-2"}}}, a.w.kubelet)
	a.pass(t, time.Hour)
	assert.Len(t, a.kubelets.asked, 1, "what it gave stays given")
}

func TestAKubeletThatDoesNotSayIsAskedAgainLessAndLessOften(t *testing.T) {
	a := newAsking(t)
	uid := a.add("a", "one", "GPU-0")
	a.kubelets.err = errors.New("no socket")
	a.pass(t, 0)
	a.pass(t, time.Millisecond)
	assert.Len(t, a.kubelets.asked, 1)
	assert.Equal(t, dualpods.Allocation{Why: "no socket", Since: now, Again: now.Add(dualpods.FirstAllocationPause)}, a.w.kubelet[uid])
	for n := range 20 {
		a.pass(t, a.w.kubelet[uid].Again.Sub(a.w.now))
		assert.Len(t, a.kubelets.asked, n+2)
		assert.LessOrEqual(t, a.w.kubelet[uid].Again.Sub(a.w.now), dualpods.LongestAllocationPause)
	}
	a.kubelets.err = nil
	a.pass(t, dualpods.LongestAllocationPause)
	assert.Equal(t, "the kubelet tells of no GPU of its container inference-server", a.w.kubelet[uid].Why)
	a.gave("a", "one", "GPU-0::1")
	a.pass(t, dualpods.LongestAllocationPause)
	assert.Equal(t, dualpods.Allocation{GPUs: []string{"GPU-0"}}, a.w.kubelet[uid])
}

func TestAgentThatDoesNotRunIsNamed(t *testing.T) {
	a := newAsking(t)
	uid := a.add("a", "one", "GPU-0")
	a.w.agents[0].Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "again in 10s"}}
	a.pass(t, 0)
	assert.Empty(t, a.kubelets.asked)
	assert.Equal(t, "agent agent waits in its container agent: CrashLoopBackOff again in 10s", a.w.kubelet[uid].Why)
}

func TestAgentThatIsBeingDeletedIsAskedLast(t *testing.T) {
	a := newAsking(t)
	a.add("a", "one", "GPU-0")
	next := running1("system", "next", podmeta.AgentContainer)
	next.Status.PodIP = "10.1.0.4"
	a.w.agents[0].DeletionTimestamp = &metav1.Time{Time: now}
	a.w.agents = append(a.w.agents, next)
	a.kubelets.err = errors.New("refused")
	a.pass(t, 0)
	assert.Equal(t, []string{"10.1.0.4:8002 system.agents.hotseat.dev", "10.1.0.3:8002 system.agents.hotseat.dev"}, a.kubelets.asked)
}

func TestOnANodeWithoutAgentNoProgramIsBelieved(t *testing.T) {
	a := newAsking(t)
	uid := a.add("a", "one", "GPU-0")
	a.w.agents = nil
	a.pass(t, 0)
	assert.Empty(t, a.kubelets.asked)
	word := a.c.allocation(a.w, a.w.launchers[0], dualpods.Identity{Namespace: "a", UID: uid})
	require.NotNil(t, word)
	assert.Empty(t, word.GPUs)
	assert.Contains(t, word.Why, "node node-0 has no Pod of the DaemonSet hotseat-agent in namespace system")

	another := running1("system", "another", podmeta.AgentContainer)
	a.w.agents = []*corev1.Pod{another}
	a.gave("a", "one", "GPU-0")
	a.pass(t, dualpods.FirstAllocationPause)
	assert.Equal(t, dualpods.Allocation{GPUs: []string{"GPU-0"}}, a.w.kubelet[uid])
}

func TestOnlyPodsOfTheControllersNamespaceAreAgents(t *testing.T) {
	c := New(t.Context(), Options{AgentNamespace: "system"}, logr.Discard())
	agent := running1("system", "agent", podmeta.AgentContainer)
	agent.Labels, agent.Spec.NodeName = map[string]string{podmeta.LabelComponent: podmeta.ComponentAgent}, "node-0"
	assert.True(t, c.isAgent(agent))
	assert.Equal(t, request("node-0"), c.nodeOfPod(t.Context(), agent))
	agent.Namespace = "users"
	assert.False(t, c.isAgent(agent))
	assert.Empty(t, c.nodeOfPod(t.Context(), agent))
	agent.Namespace, agent.Labels = "system", nil
	assert.False(t, c.isAgent(agent))
}

func TestWhereALauncherConfigChecksNothingARequestersWordCounts(t *testing.T) {
	a := newAsking(t)
	uid := a.add("a", "one", "GPU-0")
	l := a.w.launchers[0]
	l.of.Spec.AllocationCheck.Mode = v1alpha1.AllocationCheckNone
	a.pass(t, 0)
	assert.Empty(t, a.kubelets.asked)
	assert.Nil(t, a.c.allocation(a.w, l, dualpods.Identity{Namespace: "a", UID: uid}))
	assert.NotNil(t, a.c.allocation(a.w, a.w.launchers[1], dualpods.Identity{Namespace: "a", UID: uid}))
}

func TestOneThatLiesDisturbsNobodyWhoHasItsGPUsFromTheKubelet(t *testing.T) {
	a := newAsking(t)
	honest, liar := a.add("a", "honest", "GPU-0"), a.add("b", "liar", "GPU-0")
	assert.Equal(t, []string{"b/liar"}, a.w.rivals(honest), "nobody knows who lies")
	assert.Equal(t, []string{"a/honest"}, a.w.rivals(liar))
	a.gave("a", "honest", "GPU-0")
	a.pass(t, 0)
	assert.Empty(t, a.w.rivals(honest))
	assert.Equal(t, []string{"a/honest"}, a.w.rivals(liar), "the kubelet has not said what it gave to this one")
	a.gave("b", "liar", "GPU-1")
	a.pass(t, time.Minute)
	assert.Empty(t, a.w.rivals(honest))
	assert.Empty(t, a.w.rivals(liar))

	shared := a.add("a", "shares", "GPU-0")
	a.gave("a", "shares", "GPU-0::1")
	a.pass(t, time.Minute)
	assert.Equal(t, []string{"a/shares"}, a.w.rivals(honest), "the kubelet gave both the same GPU")
	assert.Equal(t, []string{"a/honest"}, a.w.rivals(shared))
}

func TestOneThatIsBoundOnAGPUHasOnlyOthersThatAreBoundOnItForRivals(t *testing.T) {
	a := newAsking(t)
	first, second := a.add("a", "first", "GPU-0"), a.add("b", "second", "GPU-0")
	a.w.launchers[0].bindings = []podmeta.Binding{{Instance: "model-1", Namespace: "a", RequesterUID: first, GPUs: []string{"GPU-0"}}}
	assert.Empty(t, a.w.rivals(first), "what one says who is not bound does not count")
	assert.Equal(t, []string{"a/first"}, a.w.rivals(second))
	a.w.launchers[1].bindings = []podmeta.Binding{{Instance: "model-2", Namespace: "b", RequesterUID: second, GPUs: []string{"GPU-0"}}} // as after a damaged record was mended
	assert.Equal(t, []string{"b/second"}, a.w.rivals(first))
	assert.Equal(t, []string{"a/first"}, a.w.rivals(second))
}

func TestRecordsOfAnOrphanThatShowsATokenClaimNoGPU(t *testing.T) {
	a := newAsking(t)
	first, second := a.add("a", "first", "GPU-1"), a.add("a", "second", "GPU-0")
	a.gave("a", "first", "GPU-1")
	a.gave("a", "second", "GPU-0")
	a.pass(t, 0)
	orphan := a.w.launchers[0]
	orphan.orphan = true
	orphan.bindings = []podmeta.Binding{{Instance: "model-1", Namespace: "a", RequesterUID: first, GPUs: []string{"GPU-0"}}}
	assert.Empty(t, a.w.rivals(second))
	orphan.view = nodeview.View{Certified: true, Instances: map[string]launcherapi.Instance{}}
	assert.Equal(t, []string{"a/first"}, a.w.rivals(second))
}

func TestForRequestersOfOrphansNoKubeletIsAsked(t *testing.T) {
	a := newAsking(t)
	a.add("a", "one", "GPU-0")
	a.w.launchers[0].of, a.w.launchers[0].orphan = nil, true
	a.pass(t, 0)
	assert.Empty(t, a.kubelets.asked)
}

func TestKubeletsWordAboutASidecarCountsWhereThatRunsTheProgram(t *testing.T) {
	a := newAsking(t)
	pod := running1("a", "one", podmeta.ServingContainer)
	pod.Spec.InitContainers = []corev1.Container{{Name: podmeta.SidecarContainer, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	a.w.pods[pod.UID], a.w.spi[pod.UID] = pod, &decide.SPI{}
	a.gave("a", "one", "GPU-0")
	a.pass(t, 0)
	assert.Empty(t, a.kubelets.asked, "the container that waits runs, and the sidecar does not")
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: podmeta.SidecarContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	a.pass(t, 0)
	assert.Equal(t, "the kubelet tells of no GPU of its container requester", a.w.kubelet[pod.UID].Why)
	a.kubelets.pods[0].Containers[0].Name = podmeta.SidecarContainer
	a.pass(t, time.Hour)
	assert.Equal(t, dualpods.Allocation{GPUs: []string{"GPU-0"}}, a.w.kubelet[pod.UID])
}

// countedQuestions are requester programs that all say the same of their proxy.
type countedQuestions struct {
	Requesters
	proxy requesterapi.Proxy
	asked int
}

func (q *countedQuestions) Proxy(context.Context, string) (requesterapi.Proxy, error) {
	q.asked++
	return q.proxy, nil
}

func (q *countedQuestions) Accelerators(context.Context, string) ([]string, error) { return nil, nil }

func TestServingRequesterIsAskedOnlyIfSomethingMayHaveChanged(t *testing.T) {
	for name, c := range map[string]struct {
		when  func(*decide.Observation)  // the answer came
		did   decide.Action              // the pass, for the requester
		later func(*asking, *corev1.Pod) // before the next pass
		asked int
	}{
		"nothing has":                       {did: decide.Nothing},
		"its Pod has changed":               {did: decide.Nothing, later: func(_ *asking, pod *corev1.Pod) { pod.ResourceVersion = "8" }, asked: 1},
		"a minute is over":                  {did: decide.Nothing, later: func(a *asking, _ *corev1.Pod) { a.w.now = a.w.now.Add(answerAge + time.Second) }, asked: 1},
		"something was to be done":          {did: decide.Publish, asked: 1},
		"it did not serve":                  {when: func(o *decide.Observation) { o.SPI.Proxy.Ready = false }, did: decide.Nothing, asked: 1},
		"it is not known whether it serves": {when: func(o *decide.Observation) { o.SPI = nil }, did: decide.Nothing, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			a, o := newAsking(t), servedOne()
			questions := &countedQuestions{proxy: o.SPI.Proxy}
			a.c.opts.Requesters = questions
			pod := a.w.pods[a.add("a", "one")]
			pod.UID, pod.ResourceVersion = o.Requester.UID, "7"
			a.w.pods, a.w.recalled = map[types.UID]*corev1.Pod{pod.UID: pod}, map[types.UID]bool{}
			said := o.SPI
			a.w.spi[pod.UID] = said
			if c.when != nil {
				c.when(&o)
			}
			a.n.keepAnswer(a.w, &o, decide.Step{Do: c.did})
			if c.later != nil {
				c.later(a, pod)
			}
			a.w.spi = map[types.UID]*decide.SPI{}
			a.c.askRequesters(t.Context(), a.n, a.w)
			assert.Equal(t, c.asked, questions.asked)
			require.NotNil(t, a.w.spi[pod.UID])
			assert.Equal(t, c.asked == 0, a.w.recalled[pod.UID])
			assert.Equal(t, c.asked == 0, a.w.spi[pod.UID] == said)
		})
	}
}

func TestAgeOfAnAnswerGoesOnWhileItIsRecalled(t *testing.T) {
	a, o := newAsking(t), servedOne()
	pod := a.w.pods[a.add("a", "one")]
	pod.UID = o.Requester.UID
	a.w.pods = map[types.UID]*corev1.Pod{pod.UID: pod}
	a.w.spi[pod.UID], a.w.recalled = o.SPI, map[types.UID]bool{}
	a.n.keepAnswer(a.w, &o, decide.Step{Do: decide.Nothing})
	for range 3 {
		a.w.now = a.w.now.Add(answerAge / 2)
		a.w.recalled[pod.UID] = a.n.recall(pod, a.w.now) != nil
		a.n.keepAnswer(a.w, &o, decide.Step{Do: decide.Nothing})
	}
	assert.False(t, a.w.recalled[pod.UID])
}

func TestRequesterIsAskedAnewBeforeAnythingIsDoneForIt(t *testing.T) {
	a := newAsking(t)
	questions := &countedQuestions{}
	a.c.opts.Requesters, a.c.opts.Leads, a.c.opts.Now = questions, func() bool { return false }, time.Now
	a.w.launchers = nil
	uid := a.add("a", "one", "GPU-0")
	a.w.recalled, a.w.asked = map[types.UID]bool{uid: true}, map[types.UID]requester{}
	_, err := a.c.settle(t.Context(), a.n, a.w, dualpods.IdentityOf(a.w.pods[uid]))
	require.ErrorIs(t, err, dualpods.ErrNotLeading, "there is something to be done")
	assert.Equal(t, 1, questions.asked)
	assert.False(t, a.w.recalled[uid])
}
