package endpoints

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"hotseat.dev/hotseat/spec/podmeta"
)

// Reason says why the slices of a Service cannot be kept.
type Reason string

// The reasons of the condition podmeta.ConditionEndpoints.
const (
	Kept            Reason = "Kept"
	HasSelector     Reason = "HasSelector"
	HasNoEndpoints  Reason = "HasNoEndpoints"
	InvalidSelector Reason = "InvalidSelector"
)

// wrong is what is wrong with the annotation of a Service, and what would be right.
type wrong struct {
	reason  Reason
	message string
}

// asks reports whether a Service asks for slices.
func asks(service *corev1.Service) bool {
	_, is := service.Annotations[podmeta.AnnotationEndpoints]
	return is
}

// Index is the cache's index of Services. Each event of a requester asks for those that ask for slices,
// and each entry of a ModelServing has a Service that does not.
const Index = "endpoints"

const asking = "asking" // value in the index

// Indexed returns a Service's values in the index.
func Indexed(service *corev1.Service) []string {
	if asks(service) {
		return []string{asking}
	}
	return nil
}

// selectorOf returns which requesters a Service is to lead to, or what is wrong with it.
func selectorOf(service *corev1.Service) (labels.Selector, *wrong) {
	const annotation = "metadata.annotations[" + podmeta.AnnotationEndpoints + "]"
	switch {
	case len(service.Spec.Selector) > 0:
		return nil, &wrong{HasSelector, "spec.selector: Kubernetes keeps the endpoints of a Service that has a selector: remove spec.selector, or the annotation " + podmeta.AnnotationEndpoints}
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return nil, &wrong{HasNoEndpoints, "spec.type: a Service of type ExternalName has no endpoints: give it another type, or remove the annotation " + podmeta.AnnotationEndpoints}
	}
	text := service.Annotations[podmeta.AnnotationEndpoints]
	selector, err := labels.Parse(text)
	switch {
	case err != nil:
		return nil, &wrong{InvalidSelector, fmt.Sprintf("%s: %q is no label selector: %s: write one such as app=llama or model in (llama, qwen)", annotation, text, err)}
	case selector.Empty():
		return nil, &wrong{InvalidSelector, annotation + ": it is empty: write a label selector such as app=llama"}
	}
	return selector, nil
}

// families returns the address types of the slices of a Service. The API server sets
// spec.ipFamilies.
func families(service *corev1.Service) (types []discoveryv1.AddressType) {
	for _, f := range service.Spec.IPFamilies {
		switch f {
		case corev1.IPv4Protocol:
			types = append(types, discoveryv1.AddressTypeIPv4)
		case corev1.IPv6Protocol:
			types = append(types, discoveryv1.AddressTypeIPv6)
		default: // there is no other
		}
	}
	return types
}

// labelsOf returns the labels of the slices of a Service. They have those of the Service, as
// with Kubernetes' own slices: proxies choose slices by some of them.
func labelsOf(service *corev1.Service) map[string]string {
	all := maps.Clone(service.Labels)
	if all == nil {
		all = map[string]string{}
	}
	delete(all, corev1.IsHeadlessService)
	if service.Spec.ClusterIP == corev1.ClusterIPNone || service.Spec.ClusterIP == "" {
		all[corev1.IsHeadlessService] = ""
	}
	all[discoveryv1.LabelServiceName] = service.Name
	all[discoveryv1.LabelManagedBy] = podmeta.ManagedByEndpoints
	return all
}

// ownerOf returns the owner of the slices of a Service. It does not block the Service's
// deletion.
func ownerOf(service *corev1.Service) []metav1.OwnerReference {
	controller := true
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID, Controller: &controller}}
}

// ours reports whether this controller wrote a slice.
func ours(slice *discoveryv1.EndpointSlice) bool {
	owner := metav1.GetControllerOf(slice)
	return slice.Labels[discoveryv1.LabelManagedBy] == podmeta.ManagedByEndpoints && owner != nil && owner.Kind == "Service" && owner.APIVersion == "v1"
}

// ownedBy reports whether a slice is of this Service, and not of an earlier one of its name.
func ownedBy(slice *discoveryv1.EndpointSlice, service *corev1.Service) bool {
	owner := metav1.GetControllerOf(slice)
	return owner != nil && owner.UID == service.UID
}
