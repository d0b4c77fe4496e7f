package manager

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/trust/admission"
	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
)

// ownOnly keeps Deployments, DaemonSets, Jobs, ConfigMaps, EndpointSlices and ControllerRevisions of others,
// and Secrets that are of no launcher, out of the cache.
func ownOnly(opts Options) (map[client.Object]cache.ByObject, error) {
	tokens, err := labels.Parse(podmeta.LabelLauncherConfig) // whatever its value
	if err != nil {
		return nil, err
	}
	revisions, err := labels.Parse(podmeta.LabelServing) // whatever its value
	if err != nil {
		return nil, err
	}
	keepers := []string{podmeta.ManagedByEndpoints, podmeta.ManagedByServing}
	if answersAdmission(opts) {
		keepers = append(keepers, podmeta.ManagedBy)
	}
	slices, err := labels.NewRequirement(discoveryv1.LabelManagedBy, selection.In, keepers)
	if err != nil {
		return nil, err
	}
	own := map[client.Object]cache.ByObject{
		&corev1.Secret{}:             {Label: tokens},
		&corev1.ConfigMap{}:          {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, mtls.ConfigMap)},
		&appsv1.Deployment{}:         {Label: labels.SelectorFromSet(labels.Set{podmeta.LabelManagedBy: podmeta.ManagedBy})},
		&appsv1.DaemonSet{}:          {Label: labels.SelectorFromSet(labels.Set{podmeta.LabelManagedBy: podmeta.ManagedBy})},
		&batchv1.Job{}:               {Label: labels.SelectorFromSet(labels.Set{podmeta.LabelManagedBy: podmeta.ManagedBy})},
		&discoveryv1.EndpointSlice{}: {Label: labels.NewSelector().Add(*slices)},
		&appsv1.ControllerRevision{}: {Label: revisions},
	}
	if answersAdmission(opts) {
		own[&admissionv1.ValidatingWebhookConfiguration{}] = cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, admission.Configuration)}
	}
	return own, nil
}

// withAgents adds the agents and front doors in the controller's namespace to the Pods of the namespace that a
// controller watches alone.
func withAgents(into map[client.Object]cache.ByObject, opts Options) error {
	namespace, err := opts.ownNamespace()
	if err != nil {
		return err
	}
	ours, err := labels.NewRequirement(podmeta.LabelComponent, selection.In, []string{podmeta.ComponentAgent, podmeta.ComponentFrontDoor})
	if err != nil {
		return err
	}
	pods := map[string]cache.Config{namespace: {LabelSelector: labels.NewSelector().Add(*ours)}}
	pods[opts.Namespace] = cache.Config{} // which may be the same
	into[&corev1.Pod{}] = cache.ByObject{Namespaces: pods}
	return nil
}

// volumesOnly keeps the volumes of others out of the cache. Claims are there all: those
// that ModelCaches name are users' own.
func volumesOnly(into map[client.Object]cache.ByObject) error {
	ours, err := labels.Parse(podmeta.LabelModelVolume) // whatever its value
	if err != nil {
		return err
	}
	into[&corev1.PersistentVolume{}] = cache.ByObject{Label: ours}
	return nil
}
