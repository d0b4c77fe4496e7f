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

// Names of objects of the chart.
const (
	Configuration = "hotseat-controller-models"    // ValidatingWebhookConfiguration
	Service       = "hotseat-controller-admission" // and its EndpointSlice
	portName      = "admission"
	Path          = "/clustermodelcaches" // that is called
)

// ServerName is the name in the certificate of who answers: an API server asks for it.
func ServerName(namespace string) string { return Service + "." + namespace + ".svc" }

// Publisher tells the API server whom to ask, and whom to trust. It runs in the replica
// that leads, which alone knows what launchers say: the Service has no selector, and its
// EndpointSlice names that replica. The slice is owned by the configuration, so that it
// goes with the release.
type Publisher struct {
	API       client.Client // reads from a cache
	Namespace string        // of the Service
	Address   netip.Addr    // of this replica
	Port      int32         // at which it answers
	// Certificates are those that the API server is to trust, in PEM. It may wait.
	Certificates func(context.Context) ([]byte, error)
}

// Reconcile makes both what they should be. What it is asked for does not matter.
func (p *Publisher) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	ca, err := p.Certificates(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var hook admissionv1.ValidatingWebhookConfiguration
	if err := p.API.Get(ctx, client.ObjectKey{Name: Configuration}, &hook); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // it comes, or is not wanted
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
		return later(fmt.Errorf("cannot tell the API server whom to trust, by ValidatingWebhookConfiguration %s: %w", Configuration, err))
	}
	return reconcile.Result{}, nil
}

// reach has the Service lead to this replica.
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

// conflictPause is how long a cache that is behind is given.
const conflictPause = 100 * time.Millisecond

// later tries again at once where somebody else was faster: the cache is behind.
func later(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	}
	return reconcile.Result{}, err
}
