package binding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

// batching is a controller with one launcher, whose API server counts patches.
type batching struct {
	c       *Controller
	n       *nodeWork
	w       *world
	api     client.Client
	patches int
	refuses error
}

func newBatching(t *testing.T) *batching {
	b := &batching{}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "l", UID: "l"}}
	b.api = fake.NewClientBuilder().WithObjects(pod).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			b.patches++
			if b.refuses != nil {
				return b.refuses
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	}).Build()
	b.c = New(t.Context(), Options{API: b.api, Observer: Observers{}, Now: time.Now}, logr.Discard())
	b.n = b.c.work("node-0")
	require.NoError(t, b.api.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	l := &launcherPod{}
	l.read(pod)
	b.w = &world{launchers: []*launcherPod{l}}
	return b
}

// stage stages the record of a requester, and returns its instance.
func (b *batching) stage(t *testing.T, number int) string {
	o := fresh()
	o.Launcher.UID, o.Requester.UID = "l", types.UID(fmt.Sprint("req-", number))
	o.Requester.Instance = fmt.Sprint("model-", number)
	id := dualpods.Identity{Namespace: "ns", UID: o.Requester.UID}
	require.NoError(t, b.c.stageRecord(b.n, b.w, id, Sight{Observation: o, Step: decide.Step{Do: decide.AddRecord, Record: *newRecord(o)}}))
	return o.Requester.Instance
}

// there are the instances of which the API server has records.
func (b *batching) there(t *testing.T) (instances []string) {
	var pod corev1.Pod
	require.NoError(t, b.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "l"}, &pod))
	bindings, damaged := podmeta.ReadBindings(&pod)
	assert.Empty(t, damaged)
	for _, binding := range bindings {
		instances = append(instances, binding.Instance)
	}
	assert.Equal(t, len(instances) > 0, slices.Contains(pod.Finalizers, podmeta.FinalizerProvider))
	return instances
}

func TestTenRequestersAreRecordedByOnePatch(t *testing.T) {
	b := newBatching(t)
	var want []string
	for number := range 10 {
		want = append(want, b.stage(t, number))
		assert.NotEmpty(t, b.w.launchers[0].holder(want[number]), "what is decided next sees it")
	}
	assert.Zero(t, b.patches)
	records := b.c.writeRecords(t.Context(), b.n, b.w)
	require.Len(t, records, 10)
	for _, r := range records {
		assert.NoError(t, r.err)
	}
	assert.Equal(t, 1, b.patches)
	assert.ElementsMatch(t, want, b.there(t))
	assert.Empty(t, b.c.writeRecords(t.Context(), b.n, b.w), "each once")
}

func TestRefusedPatchTakesAllItsRecordsBack(t *testing.T) {
	b := newBatching(t)
	b.refuses = errors.New("the API server is away")
	instance := b.stage(t, 1)
	b.stage(t, 2)
	records := b.c.writeRecords(t.Context(), b.n, b.w)
	require.Len(t, records, 2)
	for _, r := range records {
		assert.ErrorContains(t, r.err, "cannot add record: the API server is away")
	}
	assert.Empty(t, b.w.launchers[0].holder(instance))
	assert.True(t, b.n.unheard, "they may be there")
	b.refuses = nil
	b.stage(t, 1)
	b.c.writeRecords(t.Context(), b.n, b.w)
	assert.Equal(t, []string{instance}, b.there(t))
}

func TestAnotherWriteToALauncherComesAfterItsNewRecords(t *testing.T) {
	b := newBatching(t)
	instance := b.stage(t, 1)
	l := b.w.launchers[0]
	require.NoError(t, b.c.patchLauncher(t.Context(), b.n, l, func(p *corev1.Pod) error { p.Annotations["other"] = "x"; return nil }))
	assert.Equal(t, 2, b.patches)
	assert.Equal(t, []string{instance}, b.there(t))
	assert.Equal(t, "x", l.pod.Annotations["other"])
	assert.NotEmpty(t, l.holder(instance))
	assert.Len(t, b.c.writeRecords(t.Context(), b.n, b.w), 1, "its requester is settled on")
}

func TestProcessThatMayNotLeadWritesNoRecord(t *testing.T) {
	b := newBatching(t)
	b.stage(t, 1)
	b.c.opts.Leads = func() bool { return false }
	records := b.c.writeRecords(t.Context(), b.n, b.w)
	require.Len(t, records, 1)
	require.ErrorIs(t, records[0].err, dualpods.ErrNotLeading)
	assert.Zero(t, b.patches)
	assert.False(t, b.n.unheard)
}

// The launchers of the schedules are not ready when the requesters come, so that a pass finds both.
func TestRequestersThatComeTogetherAreServedWhateverBecomesOfTheirPatch(t *testing.T) {
	come := simEvent{at: time.Millisecond, what: "create together", arg: 2 << 3}
	for name, script := range map[string][]simEvent{
		"nothing else happens":     {come},
		"the API server is flaky":  {come, {at: 2 * time.Millisecond, what: "API flaky", arg: 8000}},
		"the controller is killed": {come, {at: 600 * time.Millisecond, what: "kill controller", arg: 3}},
	} {
		together := 0
		for seed := range uint64(40) {
			out := simulate(t, seed, script, decide.Tables, true)
			assert.Empty(t, out.wrong, "%s, seed %d", name, seed)
			if slices.ContainsFunc(out.lines, func(line string) bool { return strings.Count(line, podmeta.AnnotationBindingPrefix) == 2 }) {
				together++
			}
		}
		assert.Positive(t, together, "%s: no schedule had both records in one patch", name)
		t.Logf("%s: both records by one patch in %d of 40 schedules", name, together)
	}
}
