package groups

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// content is what a revision records of a template: the roles, without their numbers of replicas
// and what these come from. The gang policy, the network topology and the grace of restarts change
// no Pod.
func content(template *v1alpha1.ServingGroupTemplate) []byte {
	without := template.DeepCopy()
	without.GangPolicy, without.LowerGangPolicy = nil, nil
	without.NetworkTopology, without.RatioConstraint, without.RestartGracePeriodSeconds = nil, nil, nil
	for i := range without.Roles {
		without.Roles[i] = withoutNumbers(without.Roles[i])
	}
	return canonical(without)
}

// roleHash identifies the template of a role.
func roleHash(role *v1alpha1.ServingRole) string {
	return hash(canonical(withoutNumbers(*role)))
}

// withoutNumbers returns a role without what changes no Pod.
func withoutNumbers(role v1alpha1.ServingRole) v1alpha1.ServingRole {
	role.Replicas, role.Scaling, role.RollingUpdateConfiguration = nil, nil, nil
	return role
}

// canonical returns JSON that is the same for the same content: keys are sorted.
func canonical(of any) []byte {
	text, err := json.Marshal(of)
	var plain any
	if err == nil {
		err = json.Unmarshal(text, &plain)
	}
	if err == nil {
		text, err = json.Marshal(plain)
	}
	if err != nil {
		panic(err) // the API server has decoded it
	}
	return text
}

func hash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:5])
}

// newRevision returns the ControllerRevision of the present template.
func (w *World) newRevision() *appsv1.ControllerRevision {
	last := int64(0)
	for _, r := range w.Revisions {
		last = max(last, r.Revision)
	}
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Serving.Namespace, Name: revisionName(w.Serving, w.Revision), OwnerReferences: owners(w.Serving),
			Labels:      map[string]string{podmeta.LabelServing: w.Serving.Name, podmeta.LabelServingRevision: w.Revision, podmeta.LabelManagedBy: podmeta.ManagedBy},
			Annotations: map[string]string{podmeta.AnnotationReplicas: replicasOf(&w.Serving.Spec.Template)},
		},
		Data:     runtime.RawExtension{Raw: content(&w.Serving.Spec.Template)},
		Revision: last + 1,
	}
}

func revisionName(serving *v1alpha1.ModelServing, revision string) string {
	return fmt.Sprintf("%s-%s", serving.Name, revision)
}

// isRevision reports whether a ControllerRevision has the name and the label that the controller
// gives.
func isRevision(serving *v1alpha1.ModelServing, r *appsv1.ControllerRevision) bool {
	return r.Name == revisionName(serving, r.Labels[podmeta.LabelServingRevision])
}

// owners returns the owner references of an object that is made for a ModelServing.
func owners(serving *v1alpha1.ModelServing) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(serving, v1alpha1.GroupVersion.WithKind(podmeta.KindServing))}
}
