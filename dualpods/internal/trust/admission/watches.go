package admission

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// SetupWithManager runs a pass whenever the configuration or its EndpointSlice changes.
// others is the source of requests for changes that these watches do not report.
func (p *Publisher) SetupWithManager(mgr ctrl.Manager, others source.Source) error {
	pass := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("admission").
		Watches(&admissionv1.ValidatingWebhookConfiguration{}, pass).
		Watches(&discoveryv1.EndpointSlice{}, pass).
		WatchesRawSource(others).
		Complete(p)
}
