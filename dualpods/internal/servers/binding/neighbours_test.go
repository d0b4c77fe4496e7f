package binding

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/launchers/provider"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestOnlyARefusalForMemoryThatOthersHoldCallsForRoom(t *testing.T) {
	refusal := func(bound string, foreign uint64) error {
		return fmt.Errorf("cannot swap: %w", launcher.DoesNotFit(launcherapi.Fit{Bound: bound, Foreign: foreign, Needed: 1}, "no room"))
	}
	assert.NotNil(t, noRoom(refusal(launcherapi.BoundDeviceMemory, 1)))
	assert.Nil(t, noRoom(refusal(launcherapi.BoundDeviceMemory, 0)))
	assert.Nil(t, noRoom(refusal("max_instances", 1)))
	assert.Nil(t, noRoom(errors.New("boom")))
}

const gib = uint64(1) << 30

// besides are instances that another launcher has asleep on GPU-0, the least recently used
// first.
func besides(count int) (found []launcherapi.Instance) {
	for n := range count {
		used := now.Add(time.Duration(n-100) * time.Minute)
		found = append(found, launcherapi.Instance{
			InstanceID: fmt.Sprintf("other-%d", n), State: "sleeping", GPUUUIDs: []string{"GPU-0"}, LastUsedAt: &used,
			GPUBytes: map[string]uint64{"GPU-0": gib}, Annotations: map[string]string{podmeta.AnnotationMadeFor: "ns/other"},
		})
	}
	return found
}

// awakeBeside is one that is awake.
func awakeBeside() launcherapi.Instance {
	i := besides(1)[0]
	i.State = "awake"
	return i
}

// crowded is one whose attempt lacks half a GiB that others than its launcher hold.
func crowded() decide.Observation {
	o := recorded()
	o.Attempt = decide.Attempt{Asked: true, Over: true, Failure: "no room", NoRoom: &launcherapi.Fit{
		GPUUUID: "GPU-0", Bound: launcherapi.BoundDeviceMemory, Needed: gib, Available: gib / 2, Foreign: gib,
	}}
	return o
}

// nodeViews are the views of two launchers, and what is deleted there.
type nodeViews struct {
	views   map[string]nodeview.View
	deleted chan string
}

func (v *nodeViews) Watch(string, nodeview.Target)    {}
func (v *nodeViews) Forget(string)                    {}
func (v *nodeViews) View(key string) nodeview.View    { return v.views[key] }
func (v *nodeViews) One(key, id string) nodeview.View { view := v.views[key]; return view.One(id) }
func (v *nodeViews) Pick(key string, keep func(id string, i launcherapi.Instance) bool) nodeview.View {
	view := v.views[key]
	return view.Pick(keep)
}
func (v *nodeViews) Provider(key string) provider.Provider {
	return &deleter{key: key, deleted: v.deleted}
}

type deleter struct {
	provider.Provider
	key     string
	deleted chan string
}

func (d *deleter) Delete(_ context.Context, id string) (launcherapi.Instance, error) {
	d.deleted <- d.key + "/" + id
	return launcherapi.Instance{Revision: 9}, nil
}

func TestWhatOtherLaunchersOfTheNodeHaveOnItsGPUsIsSeenAndEvictedThere(t *testing.T) {
	// A call that is over counts as under way for half a second, which does not pass here
	// while the test looks.
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		v := &nodeViews{deleted: make(chan string, 1), views: map[string]nodeview.View{"mine": {Connected: true}, "theirs": {Connected: true, Instances: map[string]launcherapi.Instance{}}}}
		for n, b := range besides(3) {
			if n == 2 {
				b.GPUUUIDs = []string{"GPU-7"}
			}
			v.views["theirs"].Instances[b.InstanceID] = b
		}
		c := New(ctx, Options{Providers: v, Again: func(string) {}}, logr.Discard())
		defer c.Close()
		defer stop()
		n, w := c.work("node-0"), &world{pods: map[types.UID]*corev1.Pod{}}
		for _, key := range []string{"mine", "theirs"} {
			l := &launcherPod{}
			l.read(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: key, UID: types.UID(key)}})
			w.launchers = append(w.launchers, l)
		}
		w.launchers[1].bindings = []podmeta.Binding{{Instance: "other-1", RequesterUID: "living"}}
		w.pods["living"] = &corev1.Pod{}
		o := crowded()
		o.Neighbours = c.neighbours(n, w, c.beside(w, w.launchers[0]), o.Record)
		require.Len(t, o.Neighbours, 2)
		assert.Equal(t, []bool{false, true}, []bool{o.Neighbours[0].Recorded, o.Neighbours[1].Living})
		w.pods["living"] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "another"}}
		beside := c.neighbours(n, w, c.beside(w, w.launchers[0]), o.Record)
		assert.False(t, beside[1].Living, "the record has only the UID of a Pod of another namespace")

		step := decide.Decide(o)
		require.Equal(t, decide.Evict, step.Do, step.Why)
		key := swapKey(w.launchers[0], o.Record)
		n.calls.begin(key, true, func(context.Context) (uint64, error) { return 0, errors.New("no room") })
		require.NoError(t, c.evict(n, w, w.launchers[0], o.Record, step.Victims))
		assert.Equal(t, "theirs/other-0", <-v.deleted)
		synctest.Wait() // until both calls are over
		assert.Equal(t, []string{"theirs/other-0"}, n.calls.attempt(key, 0).Evicted)
		assert.True(t, c.neighbours(n, w, c.beside(w, w.launchers[0]), o.Record)[0].Deleting, "the stream has not told that it is gone")
	})
}

func TestWhatASilentLauncherHasOnItsGPUsIsKnownByItsRecordsAndByWhatItSaidLast(t *testing.T) {
	awake := awakeBeside()
	v := &nodeViews{views: map[string]nodeview.View{
		"mine": {Connected: true}, "ended": {Instances: map[string]launcherapi.Instance{awake.InstanceID: awake}},
		"silent": {Lost: now, Why: "timeout", Instances: map[string]launcherapi.Instance{awake.InstanceID: awake}},
	}}
	c := New(t.Context(), Options{Providers: v, Again: func(string) {}}, logr.Discard())
	w := &world{pods: map[types.UID]*corev1.Pod{}}
	for _, key := range []string{"mine", "silent", "ended"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: key, UID: types.UID(key)}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: podmeta.ServingContainer}}}}
		if key != "ended" {
			runs(pod, "10.1.0.2")
		}
		w.launchers = append(w.launchers, &launcherPod{pod: pod})
	}
	w.launchers[1].bindings = []podmeta.Binding{{Instance: "never-told", RequesterUID: "left", GPUs: []string{"GPU-0"}}, {Instance: "beside", RequesterUID: "left", GPUs: []string{"GPU-1"}}}
	seen := map[string]decide.Neighbour{}
	for _, b := range c.neighbours(c.work("node-0"), w, c.beside(w, w.launchers[0]), recorded().Record) {
		seen[b.Key()] = b
	}
	require.Len(t, seen, 2)
	assert.True(t, seen["silent/never-told"].Recorded && seen["silent/never-told"].Silent)
	assert.Equal(t, "awake", seen["silent/other-0"].State)
	assert.Equal(t, "timeout", seen["silent/other-0"].Why)
}

func TestOrphanHoldsAGPUOnlyByItsCertificate(t *testing.T) {
	for name, caseOf := range map[string]struct {
		namespace string
		orphan    bool
		replaced  bool // its LauncherConfig exists
		certified bool
		held      bool
	}{
		"one of the same namespace, by a certificate":                                  {"ours", true, false, true, true},
		"one of the same namespace, by a token":                                        {"ours", true, false, false, false},
		"one of the same namespace whose DaemonSet was replaced, by a token":           {"ours", true, true, false, false},
		"one of another namespace":                                                     {"theirs", true, false, true, false},
		"one that its LauncherConfig owns, by a token":                                 {"theirs", false, false, false, true},
		"one of another namespace whose DaemonSet was replaced":                        {"theirs", true, true, true, true},
		"one of another namespace whose DaemonSet was replaced, without a certificate": {"theirs", true, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := &nodeViews{views: map[string]nodeview.View{"mine": {Connected: true}, "theirs": {Connected: true, Certified: caseOf.certified, Instances: map[string]launcherapi.Instance{"other-0": awakeBeside()}}}}
			c := New(t.Context(), Options{Providers: v, Again: func(string) {}}, logr.Discard())
			pod := func(key, namespace string) *launcherPod {
				return &launcherPod{view: v.View(key), pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: key, UID: types.UID(key), Namespace: namespace}}}
			}
			w := &world{launchers: []*launcherPod{pod("mine", "ours"), pod("theirs", caseOf.namespace)}}
			w.launchers[1].orphan, w.launchers[1].replaced = caseOf.orphan, caseOf.replaced
			o := recorded()
			o.Neighbours = c.neighbours(c.work("node-0"), w, c.beside(w, w.launchers[0]), o.Record)
			assert.Equal(t, caseOf.held, decide.Decide(o).Rule == "awake elsewhere")
		})
	}
}

func TestUnheardOrphanIsNotWaitedFor(t *testing.T) {
	v := &nodeViews{views: map[string]nodeview.View{"mine": {Connected: true}, "theirs": {Lost: now, Why: "it has not answered yet"}}}
	c := New(t.Context(), Options{Providers: v, Again: func(string) {}}, logr.Discard())
	orphan := &launcherPod{orphan: true, view: v.View("theirs"), pod: running1("ours", "theirs", podmeta.ServingContainer)}
	mine := &launcherPod{view: v.View("mine"), pod: running1("ours", "mine", podmeta.ServingContainer)}
	orphan.pod.UID, mine.pod.UID = "theirs", "mine"
	w := &world{launchers: []*launcherPod{mine, orphan}}
	assert.Nil(t, c.unheard(c.beside(w, mine)))
	orphan.orphan = false
	assert.NotNil(t, c.unheard(c.beside(w, mine)))
}
