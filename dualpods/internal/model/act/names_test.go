package act

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestYoungerModelIsToldThatItsAliasIsTaken(t *testing.T) {
	age := func(name string, minutes int, aliases ...string) *v1alpha1.Model {
		created := metav1.NewTime(time.Unix(1_700_000_000, 0).Add(time.Duration(-minutes) * time.Minute))
		m := &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name, CreationTimestamp: created}}
		m.Spec.Aliases = aliases
		return m
	}
	older, elsewhere := age("z", 2, "gpt"), age("a", 3, "gpt")
	elsewhere.Namespace = "other"
	s := newSite(t, `{metadata: {creationTimestamp: "2023-11-14T22:12:20Z"}, spec: {url: 'hf://o/m', resourceProfile: gpu, aliases: [gpt, own, b], adapters: [{name: x, url: 'hf://o/x'}]}}`,
		older, elsewhere, age("y", 0, "own"), age("b", 0), age("llama_x", 0))
	conflict := func() *metav1.Condition {
		s.pass(tellPause)
		s.pass(tellPause)
		return meta.FindStatusCondition(s.model().Status.Conditions, v1alpha1.ConditionNameConflict)
	}
	c := conflict()
	require.NotNil(t, c)
	assert.Equal(t, []any{metav1.ConditionTrue, v1alpha1.ReasonNameTaken}, []any{c.Status, c.Reason})
	const other = ": rename this alias or adapter here, or in that Model"
	assert.Equal(t, "requests for gpt go to the Model z"+other+"; requests for b go to the Model b"+other+"; requests for llama_x go to the Model llama_x"+other, c.Message)

	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	require.NoError(t, s.api.Delete(t.Context(), older))
	ofSameNames(s.api).Delete(t.Context(), event.DeleteEvent{Object: older}, queue)
	require.Equal(t, 1, queue.Len())
	told, _ := queue.Get()
	assert.Equal(t, reconcile.Request{NamespacedName: key}, told)
	assert.NotContains(t, conflict().Message, "gpt")

	for _, name := range []string{"b", "llama_x"} {
		require.NoError(t, s.api.Delete(t.Context(), &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name}}))
	}
	assert.Equal(t, metav1.ConditionFalse, conflict().Status)
}
