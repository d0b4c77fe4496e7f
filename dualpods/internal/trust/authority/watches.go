package authority

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// SetupWithManager runs the Keeper in the replica that leads, and has it look at its
// Secret when the Secret changes. The cache is the one that the Keeper reads from; it
// runs in every replica.
func (k *Keeper) SetupWithManager(ctx context.Context, mgr ctrl.Manager, secrets cache.Cache) error {
	informer, err := secrets.GetInformer(ctx, &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("cannot watch the certificate authority: %w", err)
	}
	nudge := func(any) { k.Nudge() }
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: nudge, UpdateFunc: func(any, any) { k.Nudge() }, DeleteFunc: nudge,
	}); err != nil {
		return fmt.Errorf("cannot watch the certificate authority: %w", err)
	}
	keep := manager.RunnableFunc(func(ctx context.Context) error {
		if !secrets.WaitForCacheSync(ctx) {
			return nil // the manager ends
		}
		return k.Start(ctx)
	})
	return errors.Join(mgr.Add(secrets), mgr.Add(keep))
}

// SetupWithManager has the authorities published in a namespace when it is created, so that
// its first requester finds them, and when the ConfigMap changes. Requests for what these
// watches do not report come from others. A controller that watches only one namespace may
// not watch that namespace itself: it publishes when it starts, and when a requester or a
// LauncherConfig comes.
func (p *Publisher) SetupWithManager(mgr ctrl.Manager, others source.Source, only string) error {
	namespace := enqueue(client.Object.GetNamespace)
	all := func(client.Object) bool { return true }
	published := ctrl.NewControllerManagedBy(mgr).Named("authority").
		Watches(&corev1.ConfigMap{}, namespace).
		WatchesRawSource(others)
	if only == "" {
		return published.WatchesMetadata(&corev1.Namespace{}, enqueue(client.Object.GetName), created(all)).Complete(p)
	}
	return published.
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: only}})
			return nil
		})).
		Watches(&corev1.Pod{}, namespace, created(func(o client.Object) bool {
			pod, ok := o.(*corev1.Pod)
			return ok && dualpods.LooksLike(pod) != dualpods.KindOther
		})).
		Watches(&v1alpha1.LauncherConfig{}, namespace, created(all)).
		Complete(p)
}

// enqueue requests the namespace that an object tells.
func enqueue(of func(client.Object) string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: of(o)}}}
	})
}

// created accepts only the creation of objects that count.
func created(counts func(client.Object) bool) builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return counts(e.Object) },
		UpdateFunc: func(event.UpdateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false },
	})
}
