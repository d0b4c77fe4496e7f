package binding

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestNoFinalizerGoesWhileARecordMayHaveBeenWrittenOfWhichTheCacheHasNotHeard(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "a", UID: "a", Finalizers: []string{podmeta.FinalizerRequester}, Annotations: map[string]string{podmeta.AnnotationServerPatch: "{}"},
	}}
	launcher := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "l", UID: "l", Labels: map[string]string{podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: "vllm"},
	}}
	lost := true
	api := fake.NewClientBuilder().WithObjects(pod, launcher).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := c.Patch(ctx, o, patch, opts...); err != nil || !lost {
				return err
			}
			lost = false
			return apierrors.NewTimeoutError("it was done", 1)
		},
	}).Build()
	there := func(ctx context.Context, _ string) ([]corev1.Pod, error) {
		var list corev1.PodList
		err := api.List(ctx, &list)
		return list.Items, err
	}
	c := New(t.Context(), Options{API: api, Pods: there, Recorder: silentRecorder{}, Observer: Observers{}, Now: time.Now}, logr.Discard())
	defer c.Close()
	n := c.work("node-0")
	cached := func() *world { // as the API server has the Pods now
		pods, err := there(t.Context(), "")
		require.NoError(t, err)
		w := &world{pods: map[types.UID]*corev1.Pod{}, asked: map[types.UID]requester{}}
		for i := range pods {
			if dualpods.LooksLike(&pods[i]) == dualpods.KindLauncher {
				l := &launcherPod{}
				l.read(&pods[i])
				w.launchers = append(w.launchers, l)
				continue
			}
			w.pods[pods[i].UID] = &pods[i]
		}
		return w
	}
	held := func() bool {
		var now corev1.Pod
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(pod), &now))
		return podmeta.Held(&now)
	}
	o := fresh()
	o.Requester.UID, o.Requester.Namespace, o.Form.LauncherConfig = "a", "ns", "vllm"

	w := cached()
	o.Launcher.UID = w.launchers[0].pod.UID
	require.NoError(t, c.stageRecord(n, w, dualpods.Identity{Namespace: "ns", UID: "a"}, Sight{Observation: o, Step: decide.Step{Do: decide.AddRecord, Record: *newRecord(o)}}))
	records := c.writeRecords(t.Context(), n, w)
	require.Len(t, records, 1)
	require.ErrorContains(t, records[0].err, "it was done")
	again, over, err := c.take(t.Context(), n, w, o, decide.Step{Do: decide.RemoveFinalizer})
	require.NoError(t, err)
	assert.True(t, over)
	assert.Positive(t, again)
	assert.True(t, held(), "the cache has no record, and the API server has one")

	_, _, err = c.take(t.Context(), n, cached(), o, decide.Step{Do: decide.RemoveFinalizer})
	require.NoError(t, err)
	assert.False(t, held(), "the cache has heard")
}

func TestAnAnswerIsLostUnlessTheAPIServerHasRefused(t *testing.T) {
	for err, want := range map[error]bool{
		errors.New("connection reset by peer"):                                                    true,
		apierrors.NewTimeoutError("slow", 1):                                                      true,
		apierrors.NewInternalError(errors.New("leader lost")):                                     true,
		apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "a", errors.New("changed")): false,
		apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("policy")): false,
		apierrors.NewTooManyRequestsError("later"):                                                false,
		&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusUnprocessableEntity}}:    false,
	} {
		assert.Equal(t, want, dualpods.AnswerLost(err), err.Error())
	}
}

func TestACacheThatIsNewerThanTheAnswerIsNewEnough(t *testing.T) {
	of := func(version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a", ResourceVersion: version, Annotations: map[string]string{podmeta.AnnotationServerPatch: "{}"}}}
	}
	w := &world{pods: map[types.UID]*corev1.Pod{"a": of("10")}}
	assert.True(t, w.isAsNewAs([]corev1.Pod{*of("9")}))
	assert.True(t, w.isAsNewAs([]corev1.Pod{*of("10")}))
	assert.False(t, w.isAsNewAs([]corev1.Pod{*of("11")}))
	assert.False(t, w.isAsNewAs(nil), "whether the Pod is gone or new nobody knows")
}
