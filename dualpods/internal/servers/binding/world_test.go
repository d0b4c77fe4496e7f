package binding

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/launcherpool"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestALauncherServesRequestersOfItsNamespaceAlone(t *testing.T) {
	of := func(namespace string) *launcherPod {
		return &launcherPod{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Labels: launcherpool.Labels("vllm"),
		}}}
	}
	w := &world{launchers: []*launcherPod{of("theirs"), of("ours")}}
	for _, wanted := range []form.Form{{LauncherConfig: "vllm"}, {}} {
		need := wanted.Need()
		need.Namespace = "ours"
		found, _ := w.candidate(need)
		require.NotNil(t, found)
		assert.Equal(t, "ours", found.pod.Namespace)
		need.Namespace = "elsewhere"
		found, _ = w.candidate(need)
		assert.Nil(t, found)
	}
}

func TestClosedLauncherGetsNoNewRequesters(t *testing.T) {
	of := func(name string, closed bool) *launcherPod {
		return &launcherPod{closed: closed, pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "ns", Labels: launcherpool.Labels("vllm"),
		}}}
	}
	w := &world{launchers: []*launcherPod{of("closed", true), of("open", false)}}
	for _, wanted := range []form.Form{{LauncherConfig: "vllm"}, {}} {
		need := wanted.Need()
		need.Namespace = "ns"
		found, _ := w.candidate(need)
		require.NotNil(t, found)
		assert.Equal(t, "open", found.pod.Name)
	}
	found, _ := (&world{launchers: w.launchers[:1]}).candidate(dualpods.LauncherNeed{Namespace: "ns", Config: "vllm"})
	assert.Nil(t, found)
}

func TestRecordsOfOtherNamespacesCountForNothing(t *testing.T) {
	record := func(namespace string) string {
		b := podmeta.Binding{Instance: "model-1", RequesterUID: "uid", Namespace: namespace, Name: "req", GPUs: []string{"GPU-0"}, ServingPort: 8000, SpecHash: "h", Attempt: 1, Since: now}
		_, value, err := b.Encode()
		require.NoError(t, err)
		return value
	}
	for namespace, counts := range map[string]bool{"ours": true, "theirs": false} {
		l := &launcherPod{}
		l.read(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Annotations: map[string]string{podmeta.AnnotationBindingPrefix + "model-1": record(namespace)}}})
		on, _ := (&world{launchers: []*launcherPod{l}}).boundTo(dualpods.Identity{Namespace: "ours", UID: "uid"})
		assert.Equal(t, counts, on != nil, namespace)
		assert.Empty(t, l.damaged)
		assert.False(t, l.lost("model-1"), "it can be read")
	}
}

func TestRecordWithTheUIDOfAnotherNamespacesPodIsNotThatPods(t *testing.T) {
	recorded := func(namespace string) *launcherPod {
		return &launcherPod{
			pod:      &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "of-" + namespace, Namespace: namespace}},
			bindings: []podmeta.Binding{{Instance: "model-1", RequesterUID: "uid", Namespace: namespace, Name: "req"}},
		}
	}
	ours, theirs := recorded("ours"), recorded("theirs")
	living := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", UID: "uid"}}
	said := &decide.SPI{GPUs: []string{"GPU-0"}}
	for name, c := range map[string]struct {
		launchers []*launcherPod
		pods      map[types.UID]*corev1.Pod
		subjects  []dualpods.Identity // in the order in which a pass looks at them
	}{
		"only theirs, and the Pod lives": {[]*launcherPod{theirs}, map[types.UID]*corev1.Pod{"uid": living}, []dualpods.Identity{{Namespace: "theirs", UID: "uid"}, {Namespace: "ours", UID: "uid"}}},
		"both, and the Pod lives":        {[]*launcherPod{theirs, ours}, map[types.UID]*corev1.Pod{"uid": living}, []dualpods.Identity{{Namespace: "theirs", UID: "uid"}, {Namespace: "ours", UID: "uid"}}},
		"both, and the Pod is gone":      {[]*launcherPod{theirs, ours}, nil, []dualpods.Identity{{Namespace: "ours", UID: "uid"}, {Namespace: "theirs", UID: "uid"}}},
	} {
		w := &world{launchers: c.launchers, pods: c.pods, spi: map[types.UID]*decide.SPI{"uid": said}}
		assert.Equal(t, c.subjects, w.subjects(), name)
		for _, id := range c.subjects {
			on, record := w.boundTo(id)
			if id.Namespace == "ours" && !slices.Contains(c.launchers, ours) {
				assert.Nil(t, on, name)
				continue
			}
			require.NotNil(t, on, name)
			assert.Equal(t, []string{id.Namespace, id.Namespace}, []string{on.pod.Namespace, record.Namespace}, name)
			assert.Equal(t, id.Namespace == "ours" && c.pods != nil, w.pod(id) != nil, name)
		}
	}
}

func TestRecordWithTheUIDOfAnotherNamespacesPodIsOfARequesterThatIsGone(t *testing.T) {
	a := newAsking(t)
	a.c.opts.Providers = &nodeViews{}
	uid := a.add("a", "living", "GPU-0")
	a.w.kubelet[uid] = dualpods.Allocation{GPUs: []string{"GPU-0"}}
	theirs := a.w.launchers[1]
	theirs.bindings = []podmeta.Binding{{Instance: "model-1", RequesterUID: uid, Namespace: "b", Name: "made-up", GPUs: []string{"GPU-0"}}}
	o := a.c.observe(t.Context(), a.n, a.w, dualpods.Identity{Namespace: "b", UID: uid})
	assert.False(t, o.Requester.Exists)
	assert.Nil(t, o.SPI)
	assert.NotNil(t, o.Record)
	assert.Empty(t, o.Kubelet.GPUs)
	assert.Equal(t, "b/made-up", o.Requester.Namespace+"/"+o.Requester.Name)
}

func TestAnswerOfAProgramThatIsSeenToHaveEndedSinceCountsNoMore(t *testing.T) {
	a := newAsking(t)
	a.c.opts.Providers = &nodeViews{}
	uid := a.add("a", "one", "GPU-0")
	id := dualpods.IdentityOf(a.w.pods[uid])
	require.NotNil(t, a.c.observe(t.Context(), a.n, a.w, id).SPI)
	written := a.w.pods[uid].DeepCopy() // by this pass, since the program answered
	programIs(written, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})
	a.w.pods[uid] = written
	assert.Nil(t, a.c.observe(t.Context(), a.n, a.w, id).SPI)
}

func TestOfSeveralLaunchersTheOldestServesThatWorks(t *testing.T) {
	serving := func(state corev1.ContainerState) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: podmeta.ServingContainer, State: state}}
	}
	of := func(name string, change func(*corev1.Pod)) *launcherPod {
		l := &launcherPod{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "ns", Labels: launcherpool.Labels("vllm"),
		}}}
		l.pod.Status.PodIP = "10.1.0.2"
		l.pod.Status.ContainerStatuses = serving(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
		change(l.pod)
		return l
	}
	well := func(*corev1.Pod) {}
	starting := func(p *corev1.Pod) {
		p.Status.ContainerStatuses = serving(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}})
	}
	crashed := func(p *corev1.Pod) {
		p.Status.ContainerStatuses = serving(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})
	}
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	deleting := func(p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp = &now }
	for name, c := range map[string]struct {
		oldest, second func(*corev1.Pod)
		serves         string
	}{
		"both are well":                    {well, well, "oldest"},
		"the oldest is being deleted":      {deleting, well, "second"},
		"the oldest has ended":             {ended, well, "second"},
		"the container of the oldest did":  {crashed, well, "second"},
		"the oldest is starting":           {starting, well, "second"},
		"the oldest is all there is":       {starting, crashed, "oldest"},
		"one starts again and one goes":    {deleting, crashed, "second"},
		"one starts and one starts again":  {crashed, starting, "second"},
		"none will ever work":              {ended, deleting, "oldest"},
		"only the second one is going":     {well, deleting, "oldest"},
		"both have containers that ended":  {crashed, crashed, "oldest"},
		"both are being started just now":  {starting, starting, "oldest"},
		"the second one's container ended": {well, crashed, "oldest"},
	} {
		w := &world{launchers: []*launcherPod{of("oldest", c.oldest), of("second", c.second)}}
		found, _ := w.candidate(dualpods.LauncherNeed{Namespace: "ns", Config: "vllm"})
		assert.Equal(t, c.serves, found.pod.Name, name)
	}
}
