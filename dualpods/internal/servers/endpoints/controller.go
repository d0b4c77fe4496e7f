package endpoints

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Options configure a [Controller].
type Options struct {
	// API reads Services, requesters, Nodes and our slices from a cache, and writes to the
	// server.
	API client.Client
	// Live reads slices from the API server.
	Live     client.Reader
	Recorder events.EventRecorder
	// Left has a node reconciled, since a slice leads to a requester of it no more.
	Left func(node string)
	// Leads says that no other replica can be at work by now; nil: there is none.
	Leads func() bool
	Now   func() time.Time
	Log   logr.Logger
}

// Controller keeps the EndpointSlices of Services that ask for them. It reconciles a Service
// by one goroutine at a time, so that each slice has one write under way.
type Controller struct {
	opts  Options
	book  *book
	began time.Time
	queue changed
	mu    sync.Mutex
	// written is what this process knows of the slices of Services.
	written map[client.ObjectKey]*written
}

// New makes a Controller.
func New(opts Options) *Controller {
	return &Controller{opts: opts, book: newBook(), began: opts.Now(), written: map[client.ObjectKey]*written{}}
}

// Note takes in that a requester serves, or does not: its model is awake, and its program is
// ready and forwards traffic to it. It returns at once.
func (c *Controller) Note(ctx context.Context, pod *corev1.Pod, serves bool) {
	if c.book.say(pod, serves, podmeta.Ready(pod), c.opts.Now()) {
		c.queue.add(c.servicesOf(ctx, pod))
	}
}

// Forget forgets a requester that is gone.
func (c *Controller) Forget(requester types.UID) { c.book.forget(requester) }

// Leads reports whether a slice leads new connections to a requester, and else since when none
// does; zero: none ever did. As long as a Service that wants the requester has not been read,
// its slices may lead to it.
func (c *Controller) Leads(ctx context.Context, pod *corev1.Pod) (leads bool, since time.Time) {
	services := c.servicesOf(ctx, pod)
	c.book.mu.Lock()
	defer c.book.mu.Unlock()
	if c.book.leadsTo(pod.UID) {
		return true, since
	}
	for _, service := range services {
		if _, read := c.book.leads[service]; !read {
			return true, since
		}
		since = c.began // an earlier process may have written a moment ago
	}
	if left, ok := c.book.left[pod.UID]; ok {
		since = left
	}
	return false, since
}

// servicesOf returns the Services that ask for slices with a Pod in them.
func (c *Controller) servicesOf(ctx context.Context, pod *corev1.Pod) (keys []client.ObjectKey) {
	if !podmeta.IsRequester(pod) {
		return nil
	}
	var all corev1.ServiceList
	if err := c.opts.API.List(ctx, &all, client.InNamespace(pod.Namespace), client.MatchingFields{Index: asking}, client.UnsafeDisableDeepCopy); err != nil {
		c.opts.Log.Error(err, "cannot list Services", "namespace", pod.Namespace)
		return nil
	}
	for i := range all.Items {
		if selector, wrong := selectorOf(&all.Items[i]); wrong == nil && selector.Matches(labels.Set(pod.Labels)) {
			keys = append(keys, client.ObjectKeyFromObject(&all.Items[i]))
		}
	}
	return keys
}

// Reconcile makes the slices of one Service say who serves.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	var service corev1.Service
	err := c.opts.API.Get(ctx, key, &service)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("cannot read Service %s: %w", key, err)
	}
	there := err == nil
	wanted := there && asks(&service) && service.DeletionTimestamp.IsZero()
	existing, current, err := c.slicesOf(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !current { // the watch of slices begins the next pass
		return reconcile.Result{RequeueAfter: cachePatience}, nil
	}
	gone := !wanted && len(existing) == 0
	c.left(c.book.doLead(key, leadsTo(existing), gone, c.opts.Now()))
	if gone {
		c.forgetService(key)
	}
	if c.opts.Leads != nil && !c.opts.Leads() {
		return reconcile.Result{}, dualpods.ErrNotLeading
	}
	p, bad, again, err := c.decide(ctx, &service, existing, wanted)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := c.write(ctx, key, p, existing); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // somebody else was faster
			return reconcile.Result{RequeueAfter: conflictPause}, nil
		}
		return reconcile.Result{}, err
	}
	if there {
		err = c.tell(ctx, &service, wanted, bad)
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// conflictPause is when to look again after somebody else was faster.
const conflictPause = 50 * time.Millisecond

// decide returns what is to be written, what is wrong with the annotation, and when to look
// again if nothing else begins a pass.
func (c *Controller) decide(ctx context.Context, service *corev1.Service, existing []*discoveryv1.EndpointSlice, wanted bool) (p plan, bad *wrong, again time.Duration, err error) {
	if !wanted {
		return plan{remove: existing}, nil, 0, nil
	}
	selector, bad := selectorOf(service)
	if bad != nil {
		return plan{remove: existing}, bad, 0, nil
	}
	var pods corev1.PodList
	if err := c.opts.API.List(ctx, &pods, client.InNamespace(service.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return p, nil, 0, fmt.Errorf("cannot list the requesters of Service %s: %w", client.ObjectKeyFromObject(service), err)
	}
	before, now, zones := leadsTo(existing), c.opts.Now(), map[string]string{}
	var requesters []candidate
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !podmeta.IsRequester(pod) {
			continue
		}
		w, said := c.book.hear(pod.UID, podmeta.Ready(pod))
		if !said { // since this process began: what the slices say stays
			_, w.serves = before[pod.UID]
			w.since = c.began
		}
		is, until := serves(pod, w, now)
		again = dualpods.Sooner(again, until)
		node := pod.Spec.NodeName
		if _, known := zones[node]; !known {
			zones[node] = c.zoneOf(ctx, node)
		}
		requesters = append(requesters, candidate{pod: pod, serves: is, zone: zones[node]})
	}
	slices.SortFunc(requesters, func(a, b candidate) int { return cmp.Compare(a.pod.Name, b.pod.Name) })
	return planFor(service, requesters, existing), nil, again, nil
}

// zoneOf returns the zone of a node; empty: it is not known.
func (c *Controller) zoneOf(ctx context.Context, node string) string {
	var n corev1.Node
	if node == "" || c.opts.API.Get(ctx, client.ObjectKey{Name: node}, &n) != nil {
		return ""
	}
	return n.Labels[corev1.LabelTopologyZone]
}

// left has the nodes reconciled to whose requesters slices lead no more.
func (c *Controller) left(nodes []string) {
	if c.opts.Left == nil {
		return
	}
	for _, node := range nodes {
		c.opts.Left(node)
	}
}

// tell has the condition of a Service say whether its annotation can be used. It writes
// nothing on a Service whose annotation was never wrong.
func (c *Controller) tell(ctx context.Context, service *corev1.Service, wanted bool, bad *wrong) error {
	before := meta.FindStatusCondition(service.Status.Conditions, podmeta.ConditionEndpoints)
	if before == nil && bad == nil {
		return nil
	}
	changed := service.DeepCopy()
	condition := metav1.Condition{Type: podmeta.ConditionEndpoints, Status: metav1.ConditionTrue, Reason: string(Kept), Message: "hotseat keeps its EndpointSlices", ObservedGeneration: service.Generation}
	if bad != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, string(bad.reason), dualpods.Truncate(bad.message, maxMessage)
	}
	if wanted {
		meta.SetStatusCondition(&changed.Status.Conditions, condition)
	} else {
		meta.RemoveStatusCondition(&changed.Status.Conditions, podmeta.ConditionEndpoints)
	}
	if equality.Semantic.DeepEqual(changed.Status, service.Status) {
		return nil
	}
	if err := c.opts.API.Status().Patch(ctx, changed, client.StrategicMergeFrom(service)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot write the status of Service %s: %w", client.ObjectKeyFromObject(service), err)
	}
	if bad != nil && (before == nil || before.Message != condition.Message) {
		c.opts.Recorder.Eventf(service, nil, corev1.EventTypeWarning, string(bad.reason), "KeepEndpoints", "%s", condition.Message)
	}
	return nil
}

// maxMessage bounds what is said of an annotation, which may be long.
const maxMessage = 1000
