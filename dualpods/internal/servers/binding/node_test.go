package binding

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
)

// oneNode is an API server with one node at most, and one requester on it, for
// which there is nothing to do.
type oneNode struct {
	client.Client // nil: the controller calls nothing but what follows
	name          string
}

func (a *oneNode) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	if key.Name != a.name {
		return notFound("nodes", key.Name)
	}
	return nil
}

func (a *oneNode) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	var lo client.ListOptions
	lo.ApplyOptions(opts)
	if node, _ := lo.FieldSelector.RequiresExactMatch(dualpods.IndexNode); node == a.name {
		now := metav1.Now()
		into.(*corev1.PodList).Items = []corev1.Pod{{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: node, UID: types.UID(node), DeletionTimestamp: &now,
				Annotations: map[string]string{podmeta.AnnotationServerPatch: "{}"},
			},
			Spec: corev1.PodSpec{NodeName: node},
		}}
	}
	return nil
}

// looked is a Controller whose passes a test makes, and the nodes that it wants
// to look at again.
type looked struct {
	*Controller
	t     *testing.T
	api   *oneNode
	again chan string
}

func newLooked(t *testing.T) *looked {
	t.Helper()
	l := &looked{t: t, api: &oneNode{}, again: make(chan string, 2)}
	ctx, end := context.WithCancel(t.Context())
	l.Controller = New(ctx, Options{API: l.api, Recorder: silentRecorder{}, Now: time.Now, Again: func(node string) { l.again <- node }}, logr.Discard())
	t.Cleanup(func() { end(); l.Close() })
	return l
}

func (l *looked) pass(node string) {
	l.t.Helper()
	_, err := l.Reconcile(l.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: node}})
	require.NoError(l.t, err)
}

func TestNodesThatComeAndGoAreForgotten(t *testing.T) {
	l := newLooked(t)
	for n := range 1000 {
		name := fmt.Sprintf("node-%d", n)
		l.api.name = name
		l.pass(name)
		require.Len(t, l.nodes, 1)
		l.api.name = ""
		l.pass(name)
	}
	assert.Empty(t, l.nodes)
}

func TestANodeIsForgottenOnceItsCallsAreOver(t *testing.T) {
	l := newLooked(t)
	l.api.name = "node"
	l.pass("node")
	n, over := l.nodes["node"], make(chan struct{})
	n.calls.begin("unbind/uid", false, func(context.Context) (uint64, error) { <-over; return 0, nil })
	l.api.name = ""
	l.pass("node")
	assert.Same(t, n, l.nodes["node"], "its call goes on")
	close(over)
	for range 2 { // the call is over, and then has been for long enough
		require.Equal(t, "node", <-l.again)
		l.pass("node")
	}
	assert.Empty(t, l.nodes)
}
