package manager

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestANodeThatIsAskedForBeforeTheQueueIsThereIsNoHarm(t *testing.T) {
	var again requests
	again.add("too early")
	again.addLater(client.ObjectKey{Name: "too early"})
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	require.NoError(t, again.begin(t.Context(), queue))
	again.add("n1")
	again.add("n1")
	got, _ := queue.Get()
	assert.Equal(t, "n1", got.Name)
	queue.Done(got)
	assert.Zero(t, queue.Len(), "twice is once")
}

// queued returns requests whose queue is there.
func queued(t *testing.T) (*requests, workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	t.Helper()
	var r requests
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	require.NoError(t, r.begin(t.Context(), queue))
	return &r, queue
}

func TestModelServingsOfANodeAreReconciledWhenItsLauncherChanges(t *testing.T) {
	nodes, _ := queued(t)
	servings, asked := queued(t)
	heard := ears{
		nodeOf:   func(launcher string) (string, bool) { return "n1", launcher == "one" },
		configOf: func(string) (client.ObjectKey, bool) { return client.ObjectKey{}, false },
		servingsOn: func(node string) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "llama-of-" + node}}}
		},
		nodes: nodes, servings: servings,
	}
	heard.changed("unknown")
	assert.Zero(t, asked.Len())
	heard.changed("one")
	require.Equal(t, 1, asked.Len())
	got, _ := asked.Get()
	assert.Equal(t, "ns/llama-of-n1", got.String())
	asked.Done(got)
}

func TestANodeIsLookedAtWhenItsLauncherHasOtherModelsWhole(t *testing.T) {
	nodes, looked := queued(t)
	models, told := queued(t)
	heard := ears{nodeOf: func(launcher string) (string, bool) { return "n1", launcher == "one" }, nodes: nodes, models: models}
	heard.modelsChanged("one", false)
	assert.Equal(t, 1, told.Len())
	assert.Zero(t, looked.Len(), "more of one is fetched")
	heard.modelsChanged("of before", true)
	assert.Zero(t, looked.Len(), "nobody knows it")
	heard.modelsChanged("one", true)
	assert.Equal(t, 1, looked.Len())
}

func TestWhatCouldNotBeMadeIsTriedAgainSoon(t *testing.T) {
	limiter := triedAgain().RateLimiter
	for range 100 {
		assert.LessOrEqual(t, limiter.When(reconcile.Request{}), longestRetry)
	}
}
