package pool

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	inference "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// newPool returns the InferencePool of a Model. It selects the Pods that front doors lead to.
func newPool(m *v1alpha1.Model) *inference.InferencePool {
	name := inference.LabelValue(m.Name)
	return &inference.InferencePool{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.Name, Labels: map[string]string{podmeta.LabelModel: m.Name, podmeta.LabelManagedBy: podmeta.ManagedBy},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(m, v1alpha1.GroupVersion.WithKind("Model"))},
		},
		Spec: inference.InferencePoolSpec{
			Selector:          inference.LabelSelector{MatchLabels: map[inference.LabelKey]inference.LabelValue{podmeta.LabelModel: name, podmeta.LabelServes: name}},
			TargetPorts:       []inference.Port{{Number: inference.PortNumber(podmeta.PortModel)}},
			EndpointPickerRef: m.Spec.Gateway.InferencePool.EndpointPickerRef.DeepCopy(),
		},
	}
}
