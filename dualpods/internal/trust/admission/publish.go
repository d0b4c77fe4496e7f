package admission

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/spec/podmeta"
)

// Names of objects of the chart, and the path of the webhook.
const (
	Configuration = "hotseat-controller-models"    // ValidatingWebhookConfiguration
	Service       = "hotseat-controller-admission" // Service, and its EndpointSlice
	portName      = "admission"
	Path          = "/clustermodelcaches" // path that the API server calls
)

// ServerName returns the name in the certificate of the webhook server. The API server verifies
// it.
func ServerName(namespace string) string { return Service + "." + namespace + ".svc" }

// Publisher tells the API server which replica to call and which certificates to trust. It runs
// in the leader, which alone knows what launchers report. The Service has no selector, and its
// EndpointSlice has the leader's address. The configuration owns the slice, so that Kubernetes
// deletes the slice with the release.
type Publisher struct {
	API       client.Client // reads from a cache
	Namespace string        // namespace of the Service
	Address   netip.Addr    // address of this replica
	Port      int32         // port of the webhook server
	// Certificates returns the certificates that the API server should trust, in PEM. It may
	// block.
	Certificates func(context.Context) ([]byte, error)
}

// Reconcile updates the configuration and the EndpointSlice; it ignores the request.
func (p *Publisher) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	ca, err := p.Certificates(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var hook admissionv1.ValidatingWebhookConfiguration
	if err := p.API.Get(ctx, client.ObjectKey{Name: Configuration}, &hook); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // it is created later, or the release has none
	}
	if err := p.reach(ctx, &hook); err != nil {
		return later(err)
	}
	changed := hook.DeepCopy()
	for i := range changed.Webhooks {
		changed.Webhooks[i].ClientConfig.CABundle = bytes.Clone(ca)
	}
	if equality.Semantic.DeepEqual(changed.Webhooks, hook.Webhooks) {
		return reconcile.Result{}, nil
	}
	if err := p.API.Patch(ctx, changed, client.MergeFromWithOptions(&hook, client.MergeFromWithOptimisticLock{})); err != nil {
		return later(fmt.Errorf("cannot write the certificate authority into ValidatingWebhookConfiguration %s: %w", Configuration, err))
	}
	return reconcile.Result{}, nil
}

// reach writes this replica's address into the Service's EndpointSlice.
func (p *Publisher) reach(ctx context.Context, owner *admissionv1.ValidatingWebhookConfiguration) error {
	var there discoveryv1.EndpointSlice
	err := p.API.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: Service}, &there)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return fmt.Errorf("cannot read EndpointSlice %s/%s: %w", p.Namespace, Service, err)
	}
	want := p.slice(owner)
	if missing {
		if err := p.API.Create(ctx, want); err != nil {
			return fmt.Errorf("cannot make EndpointSlice %s/%s: %w", p.Namespace, Service, err)
		}
		return nil
	}
	changed := there.DeepCopy()
	changed.Labels, changed.OwnerReferences, changed.Endpoints, changed.Ports = want.Labels, want.OwnerReferences, want.Endpoints, want.Ports
	if equality.Semantic.DeepEqual(changed, &there) {
		return nil
	}
	if err := p.API.Update(ctx, changed); err != nil {
		return fmt.Errorf("cannot change EndpointSlice %s/%s: %w", p.Namespace, Service, err)
	}
	return nil
}

func (p *Publisher) slice(owner *admissionv1.ValidatingWebhookConfiguration) *discoveryv1.EndpointSlice {
	kind := discoveryv1.AddressTypeIPv4
	if p.Address.Is6() {
		kind = discoveryv1.AddressTypeIPv6
	}
	ready, name, protocol := true, portName, corev1.ProtocolTCP
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: Service,
			Labels: map[string]string{
				discoveryv1.LabelServiceName: Service, discoveryv1.LabelManagedBy: podmeta.ManagedBy, podmeta.LabelManagedBy: podmeta.ManagedBy,
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingWebhookConfiguration", Name: owner.Name, UID: owner.UID,
			}},
		},
		AddressType: kind,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{p.Address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &p.Port, Protocol: &protocol}},
	}
}

// conflictPause is the pause after a write conflict, in which the cache catches up.
const conflictPause = 100 * time.Millisecond

// later requeues soon when another writer was faster, since the cache is stale.
func later(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	}
	return reconcile.Result{}, err
}
