package endpoints

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"hotseat.dev/hotseat/spec/podmeta"
)

// SetupWithManager reconciles a Service when it changes, a requester that its selector matches,
// one of its slices, or what binding says of a requester.
func (c *Controller) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	index := func(o client.Object) []string {
		service, ok := o.(*corev1.Service)
		if !ok {
			return nil
		}
		return Indexed(service)
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Service{}, Index, index); err != nil {
		return fmt.Errorf("cannot index Services: %w", err)
	}
	// The cache has all Services before binding asks for those of a requester.
	if _, err := mgr.GetCache().GetInformer(ctx, &corev1.Service{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("cannot watch Services: %w", err)
	}
	ofPod := func(ctx context.Context, o client.Object) (all []reconcile.Request) {
		pod, ok := o.(*corev1.Pod)
		if !ok {
			return nil
		}
		return requests(c.servicesOf(ctx, pod))
	}
	return ctrl.NewControllerManagedBy(mgr).Named("endpoints").
		Watches(&corev1.Service{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(concerned())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofPod), builder.WithPredicates(podChanged())).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(serviceOfSlice)).
		WatchesRawSource(source.Func(c.queue.begin)).
		WithOptions(options).
		Complete(c)
}

// Concerns reports whether the controller reads more of a Service than its name.
func Concerns(service *corev1.Service) bool {
	return asks(service) || meta.FindStatusCondition(service.Status.Conditions, podmeta.ConditionEndpoints) != nil
}

// concerned accepts Services that ask for slices, or did.
func concerned() predicate.Predicate {
	is := func(o client.Object) bool {
		service, ok := o.(*corev1.Service)
		return ok && Concerns(service)
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return is(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return is(e.ObjectOld) || is(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return is(e.Object) },
	}
}

// podChanged accepts what a pass reads of a requester. The controller writes each of them
// several times as it comes and goes.
func podChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Pod)
		after, too := e.ObjectNew.(*corev1.Pod)
		return ok && too && !equality.Semantic.DeepEqual(readOf(before), readOf(after))
	}}
}

// read is what a pass reads of a requester, and may change.
type read struct {
	Is, Deleting, Finished bool
	Labels                 map[string]string
	IP                     string
	IPs                    []corev1.PodIP
	Conditions             []corev1.PodCondition
	Containers             []bool // ready
}

func readOf(pod *corev1.Pod) read {
	r := read{
		Is: podmeta.IsRequester(pod), Deleting: pod.DeletionTimestamp != nil, Finished: podmeta.Finished(pod),
		Labels: pod.Labels, IP: pod.Status.PodIP, IPs: pod.Status.PodIPs, Conditions: pod.Status.Conditions,
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		r.Containers = append(r.Containers, s.Ready)
	}
	return r
}

// serviceOfSlice returns the Service of a slice of ours.
func serviceOfSlice(_ context.Context, o client.Object) []reconcile.Request {
	slice, ok := o.(*discoveryv1.EndpointSlice)
	if !ok || !ours(slice) {
		return nil
	}
	return requests([]client.ObjectKey{{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}})
}

func requests(services []client.ObjectKey) (all []reconcile.Request) {
	for _, key := range services {
		all = append(all, reconcile.Request{NamespacedName: key})
	}
	return all
}

// changed has Services reconciled for what binding says.
type changed struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// begin implements [source.Func].
func (c *changed) begin(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = queue
	return nil
}

func (c *changed) add(services []client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue == nil {
		return // each Service is reconciled when the controller starts
	}
	for _, r := range requests(services) {
		c.queue.Add(r)
	}
}
