package endpoints

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
)

// These tests use a fake API server, which can refuse writes on demand. The tests in
// test/cluster/e2e use a real one.

var llama = client.ObjectKey{Namespace: "ns", Name: "llama"}

// site is a controller, and the API server that it works on.
type site struct {
	*Controller
	t      *testing.T
	live   client.WithWatch
	events *events.FakeRecorder
	now    time.Time
	left   []string // nodes
}

// newSite makes a controller that began long ago. between is what stands between it and the
// API server.
func newSite(t *testing.T, between interceptor.Funcs, objects ...client.Object) *site {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelTopologyZone: "west"}}}
	s := &site{t: t, events: events.NewFakeRecorder(10), now: begin}
	s.live = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Service{}, &corev1.Pod{}).
		WithIndex(&corev1.Service{}, Index, func(o client.Object) []string { return Indexed(o.(*corev1.Service)) }).
		WithObjects(append(objects, node)...).Build()
	s.restart(between)
	s.now = begin.Add(time.Hour)
	return s
}

// restart has another process go on.
func (s *site) restart(between interceptor.Funcs) {
	s.Controller = New(Options{
		API: interceptor.NewClient(s.live, between), Live: s.live, Recorder: s.events, Left: func(node string) { s.left = append(s.left, node) },
		Now: func() time.Time { return s.now }, Log: logr.Discard(),
	})
}

func (s *site) pass() reconcile.Result {
	s.t.Helper()
	result, err := s.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: llama})
	require.NoError(s.t, err)
	return result
}

func (s *site) slices() []discoveryv1.EndpointSlice {
	s.t.Helper()
	var all discoveryv1.EndpointSliceList
	require.NoError(s.t, s.live.List(s.t.Context(), &all))
	return all.Items
}

// serving are the requesters that slices call ready.
func (s *site) serving() (names []string) {
	s.t.Helper()
	for _, slice := range s.slices() {
		for _, e := range slice.Endpoints {
			if *e.Conditions.Ready {
				names = append(names, e.TargetRef.Name)
			}
		}
	}
	return names
}

func (s *site) leads(pod *corev1.Pod) (leads bool, since time.Time) {
	s.t.Helper()
	return s.Leads(s.t.Context(), pod)
}

func (s *site) condition() *metav1.Condition {
	s.t.Helper()
	var service corev1.Service
	require.NoError(s.t, s.live.Get(s.t.Context(), llama, &service))
	return meta.FindStatusCondition(service.Status.Conditions, podmeta.ConditionEndpoints)
}

// change changes the Service.
func (s *site) change(how func(*corev1.Service)) {
	s.t.Helper()
	var service corev1.Service
	require.NoError(s.t, s.live.Get(s.t.Context(), llama, &service))
	how(&service)
	require.NoError(s.t, s.live.Update(s.t.Context(), &service))
}

func TestARequesterIsInTheSliceOnceItServesAndOutOnceItDoesNot(t *testing.T) {
	a, b := requester("a"), requester("b")
	s := newSite(t, interceptor.Funcs{}, service(), a, b)
	leads, _ := s.leads(a)
	assert.True(t, leads, "the Service has not been read yet")
	s.pass()
	assert.Empty(t, s.slices())

	s.Note(t.Context(), a, true)
	s.Note(t.Context(), b, false)
	result := s.pass()
	assert.Equal(t, []string{"a"}, s.serving())
	assert.Equal(t, "west", *s.slices()[0].Endpoints[0].Zone)
	assert.Equal(t, settled, result.RequeueAfter, "the kubelet has to agree by then")
	leads, _ = s.leads(a)
	assert.True(t, leads)

	s.now = s.now.Add(time.Second)
	s.Note(t.Context(), a, false)
	leads, _ = s.leads(a)
	assert.True(t, leads, "the slice is not written yet")
	s.pass()
	assert.Empty(t, s.serving())
	assert.Equal(t, []string{"node-1"}, s.left)
	leads, since := s.leads(a)
	assert.False(t, leads)
	assert.Equal(t, s.now, since)
	_, since = s.leads(b)
	assert.Equal(t, begin, since, "since before this process, as far as it knows")
}

func TestALeavingRequesterServesAndGetsNoNewConnections(t *testing.T) {
	a := requester("a")
	s := newSite(t, interceptor.Funcs{}, service(), a)
	s.Note(t.Context(), a, true)
	s.pass()
	require.NoError(t, s.live.Delete(t.Context(), a)) // our finalizer holds it
	s.pass()
	conditions := s.slices()[0].Endpoints[0].Conditions
	assert.Equal(t, []bool{false, true, true}, []bool{*conditions.Ready, *conditions.Serving, *conditions.Terminating})
	leads, since := s.leads(a)
	assert.False(t, leads)
	assert.Equal(t, s.now, since)
}

func TestARequesterThatNobodyAsksForIsNotWaitedFor(t *testing.T) {
	a, other := requester("a"), requester("other", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "qwen"} })
	s := newSite(t, interceptor.Funcs{}, service(), a, other, requester("elsewhere", func(p *corev1.Pod) { p.Namespace = "other" }))
	leads, since := s.leads(other)
	assert.False(t, leads)
	assert.Zero(t, since)
	s.Note(t.Context(), other, true)
	s.pass()
	assert.Empty(t, s.slices())
}

func TestARequesterWithTheLabelsOfALauncherIsInTheSlice(t *testing.T) {
	a := requester("a", func(p *corev1.Pod) {
		p.Labels[podmeta.LabelComponent], p.Labels[podmeta.LabelLauncherConfig] = podmeta.ComponentLauncher, "vllm"
	})
	s := newSite(t, interceptor.Funcs{}, service(), a)
	s.Note(t.Context(), a, true)
	s.pass()
	assert.Equal(t, []string{"a"}, s.serving(), "somebody put them there")
}

func TestPodsThatAreNoRequestersAreInNoSlice(t *testing.T) {
	plain := requester("plain", isReady, func(p *corev1.Pod) { p.Annotations, p.Finalizers = nil, nil })
	s := newSite(t, interceptor.Funcs{}, service(publishesAll), plain)
	s.pass()
	assert.Empty(t, s.slices())
}

func TestSlicesOfAnEarlierProcessStandUntilBindingSpeaks(t *testing.T) {
	a, b := requester("a"), requester("b")
	s := newSite(t, interceptor.Funcs{}, service(), a, b)
	s.Note(t.Context(), a, true)
	s.pass()
	s.restart(interceptor.Funcs{})
	s.pass()
	assert.Equal(t, []string{"a"}, s.serving())
	leads, _ := s.leads(a)
	assert.True(t, leads)
	_, since := s.leads(b)
	assert.Equal(t, s.now, since, "the earlier process may have taken it out a moment ago")
	s.Note(t.Context(), a, false)
	s.pass()
	assert.Empty(t, s.serving())
}

func TestTheKubeletsWordCountsInTheEnd(t *testing.T) {
	a := requester("a")
	s := newSite(t, interceptor.Funcs{}, service(), a)
	kubelet := func(says func(*corev1.Pod)) {
		var pod corev1.Pod
		require.NoError(t, s.live.Get(t.Context(), client.ObjectKeyFromObject(a), &pod))
		says(&pod)
		require.NoError(t, s.live.Status().Update(t.Context(), &pod))
		s.pass()
	}
	s.Note(t.Context(), a, true)
	s.pass()
	assert.Equal(t, []string{"a"}, s.serving())
	kubelet(isReady)
	assert.Equal(t, []string{"a"}, s.serving())
	kubelet(notReady(containersNotReady))
	assert.Empty(t, s.serving())
	kubelet(isReady)
	assert.Equal(t, []string{"a"}, s.serving())

	s.Note(t.Context(), a, false)
	s.Note(t.Context(), a, true) // the kubelet notices late that it was unready
	kubelet(notReady(containersNotReady))
	assert.Equal(t, []string{"a"}, s.serving())
	s.now = s.now.Add(settled)
	s.pass()
	assert.Empty(t, s.serving())
}

func TestAWriteThatIsNotAnsweredMayHaveBeenMade(t *testing.T) {
	lost := errors.New("connection reset")
	a := requester("a")
	answers := true
	s := newSite(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := c.Create(ctx, o, opts...); err != nil || answers {
				return err
			}
			return lost
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*discoveryv1.EndpointSliceList); ok && !answers {
				return nil // the cache lags
			}
			return c.List(ctx, list, opts...)
		},
	}, service(), a)
	s.pass()
	answers = false
	s.Note(t.Context(), a, true)
	_, err := s.Reconcile(t.Context(), reconcile.Request{NamespacedName: llama})
	require.ErrorIs(t, err, lost)
	leads, _ := s.leads(a)
	assert.True(t, leads)
	s.pass()
	assert.Len(t, s.slices(), 1, "no second slice is made")
	s.Note(t.Context(), a, false)
	leads, _ = s.leads(a)
	assert.True(t, leads)
	s.now = s.now.Add(cachePatience)
	s.pass()
	assert.Empty(t, s.serving())
	leads, _ = s.leads(a)
	assert.False(t, leads)
}

func TestAPassWaitsUntilTheCacheHasTheLastWrites(t *testing.T) {
	var old []discoveryv1.EndpointSlice
	lags := false
	a, b := requester("a"), requester("b")
	s := newSite(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if slices, ok := list.(*discoveryv1.EndpointSliceList); ok && lags {
			slices.Items = old
			return nil
		}
		return c.List(ctx, list, opts...)
	}}, service(), a, b)
	s.Note(t.Context(), a, true)
	s.pass()
	lags = true
	s.Note(t.Context(), b, true)
	assert.Equal(t, cachePatience, s.pass().RequeueAfter)
	assert.Equal(t, []string{"a"}, s.serving())
	lags = false
	s.pass()
	assert.Equal(t, []string{"a", "b"}, s.serving())

	old, lags = s.slices(), true // the cache has what was written last
	s.Note(t.Context(), b, false)
	s.pass()
	assert.Equal(t, []string{"a"}, s.serving())
	s.Note(t.Context(), b, true)
	s.pass()
	assert.Equal(t, []string{"a"}, s.serving(), "and now it has not")
	s.now = s.now.Add(cachePatience)
	s.pass()
	assert.Equal(t, []string{"a", "b"}, s.serving(), "the slices were read from the API server")
}

func TestSomebodyElsesWriteIsNotOverwritten(t *testing.T) {
	conflict := apierrors.NewConflict(discoveryv1.Resource("endpointslices"), "llama-1", errors.New("it has changed"))
	refuse := false
	a, b := requester("a"), requester("b")
	s := newSite(t, interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
		if refuse {
			return conflict
		}
		return c.Update(ctx, o, opts...)
	}}, service(), a, b)
	s.Note(t.Context(), a, true)
	s.pass()
	refuse = true
	s.Note(t.Context(), b, true)
	assert.Equal(t, conflictPause, s.pass().RequeueAfter)
	refuse = false
	s.pass()
	assert.Equal(t, []string{"a", "b"}, s.serving())
}

func TestAServiceThatCannotBeServedIsToldWhy(t *testing.T) {
	a := requester("a")
	s := newSite(t, interceptor.Funcs{}, service(), a)
	s.Note(t.Context(), a, true)
	s.pass()
	assert.Nil(t, s.condition(), "nothing is wrong with it")

	s.change(func(service *corev1.Service) { service.Spec.Selector = map[string]string{"app": "llama"} })
	s.pass()
	assert.Empty(t, s.slices())
	told := s.condition()
	require.NotNil(t, told)
	assert.Equal(t, []string{"False", "HasSelector"}, []string{string(told.Status), told.Reason})
	assert.Contains(t, told.Message, "remove spec.selector")
	assert.True(t, strings.HasPrefix(<-s.events.Events, "Warning HasSelector spec.selector:"))
	s.pass()
	assert.Empty(t, s.events.Events, "it was told")

	s.change(func(service *corev1.Service) { service.Spec.Selector = nil })
	s.pass()
	assert.Equal(t, []string{"a"}, s.serving())
	assert.Equal(t, metav1.ConditionTrue, s.condition().Status)

	s.change(func(service *corev1.Service) { delete(service.Annotations, podmeta.AnnotationEndpoints) })
	s.pass()
	assert.Empty(t, s.slices())
	assert.Nil(t, s.condition())
	s.pass()
	assert.Empty(t, s.book.leads, "nothing is kept of it")
	assert.Empty(t, s.written)
}

func TestNothingIsDeletedThatSomebodyElseWrote(t *testing.T) {
	slice := func(name string, labels map[string]string, owners []metav1.OwnerReference) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: labels, OwnerReferences: owners},
			AddressType: discoveryv1.AddressTypeIPv4,
		}
	}
	theirs := labelsOf(service())
	theirs[discoveryv1.LabelManagedBy] = "somebody"
	s := newSite(t, interceptor.Funcs{}, service(),
		slice("of-another-controller", theirs, ownerOf(service())), slice("by-hand", labelsOf(service()), nil), slice("ours", labelsOf(service()), ownerOf(service())))
	s.pass()
	s.change(func(service *corev1.Service) { delete(service.Annotations, podmeta.AnnotationEndpoints) })
	s.pass()
	var names []string
	for _, slice := range s.slices() {
		names = append(names, slice.Name)
	}
	assert.Equal(t, []string{"by-hand", "of-another-controller"}, names)
}

func TestTheSlicesOfAServiceThatIsGoneGo(t *testing.T) {
	a := requester("a")
	s := newSite(t, interceptor.Funcs{}, service(), a)
	s.Note(t.Context(), a, true)
	s.pass()
	require.NoError(t, s.live.Delete(t.Context(), service()))
	s.pass()
	assert.Empty(t, s.slices())
	s.pass()
	leads, since := s.leads(a)
	assert.False(t, leads)
	assert.Equal(t, s.now, since, "proxies may still lead to it")
}

func TestAProcessThatLeadsNoMoreWritesNothing(t *testing.T) {
	a := requester("a")
	s := newSite(t, interceptor.Funcs{}, service(), a)
	s.opts.Leads = func() bool { return false }
	s.Note(t.Context(), a, true)
	_, err := s.Reconcile(t.Context(), reconcile.Request{NamespacedName: llama})
	require.ErrorIs(t, err, dualpods.ErrNotLeading)
	assert.Empty(t, s.slices())
}

func TestAnotherWordOfBindingsHasTheServicesReconciledThatWantTheRequester(t *testing.T) {
	a := requester("a")
	s := newSite(t, interceptor.Funcs{}, service(), service(func(s *corev1.Service) {
		s.Name, s.Annotations = "qwen", map[string]string{podmeta.AnnotationEndpoints: "app=qwen"}
	}), service(func(s *corev1.Service) { s.Name, s.Annotations = "plain", nil }), a)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	require.NoError(t, s.queue.begin(t.Context(), queue))
	s.Note(t.Context(), a, true)
	require.Equal(t, 1, queue.Len())
	asked, _ := queue.Get()
	assert.Equal(t, llama, asked.NamespacedName)
	queue.Done(asked)
	s.Note(t.Context(), a, true)
	assert.Zero(t, queue.Len(), "it is the same word")
	s.Note(t.Context(), a, false)
	assert.Equal(t, 1, queue.Len())
	s.Forget(a.UID)
	assert.Empty(t, s.book.words)
}

func TestOnlyWhatAPassReadsOfAPodBeginsOne(t *testing.T) {
	changes := podChanged()
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		begins bool
	}{
		"an annotation":        {func(p *corev1.Pod) { p.Annotations[podmeta.AnnotationStatus] = "{}" }, false},
		"nothing":              {func(*corev1.Pod) {}, false},
		"a label":              {func(p *corev1.Pod) { p.Labels["a"] = "b" }, true},
		"its deletion":         {isDeleted, true},
		"its readiness":        {isReady, true},
		"its end":              {hasEnded, true},
		"its address":          {func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.2" }, true},
		"another container":    {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Ready = true }, true},
		"that it is requester": {func(p *corev1.Pod) { p.Annotations, p.Finalizers = nil, nil }, true},
	} {
		after := requester("a")
		c.change(after)
		assert.Equal(t, c.begins, changes.Update(updated(requester("a"), after)), name)
	}
}

func updated(before, after client.Object) event.UpdateEvent {
	return event.UpdateEvent{ObjectOld: before, ObjectNew: after}
}
