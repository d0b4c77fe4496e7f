package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// SeatTemplate returns the Pod template of the seats of a pool. image has the requester program.
func SeatTemplate(pool *v1alpha1.SeatPool, image string) (corev1.PodTemplateSpec, error) {
	limits := corev1.ResourceList{podmeta.ResourceGPU: *resource.NewQuantity(int64(max(pool.Spec.GPUs, 1)), resource.DecimalSI)}
	template := dualpods.RequesterTemplate(image, "", limits)
	template.Annotations = map[string]string{podmeta.AnnotationLauncherConfig: pool.Spec.LauncherConfigName}
	template.Labels = map[string]string{podmeta.LabelSeat: pool.Name, podmeta.LabelManagedBy: podmeta.ManagedBy}
	template.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: podmeta.PortModel}}
	if pool.Spec.Template == nil {
		return template, nil
	}
	own, err := json.Marshal(template)
	if err == nil {
		own, err = strategicpatch.StrategicMergePatch(own, pool.Spec.Template.Raw, corev1.PodTemplateSpec{})
	}
	if err == nil {
		template = corev1.PodTemplateSpec{}
		err = json.Unmarshal(own, &template)
	}
	if err != nil {
		return template, fmt.Errorf("cannot read spec.template: %w", err)
	}
	return template, nil
}

// SeatHash identifies a template of seats: 12 hexadecimal digits.
func SeatHash(template *corev1.PodTemplateSpec) string {
	text, err := json.Marshal(template)
	if err != nil {
		panic(err) // this type cannot fail
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// SeatName is the name of a seat.
func SeatName(pool string, number int) string { return pool + "-" + strconv.Itoa(number) }

// Seat returns the Pod of a seat that has no model.
func Seat(pool *v1alpha1.SeatPool, template *corev1.PodTemplateSpec, number int) *corev1.Pod {
	template = template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = pool.Namespace, SeatName(pool.Name, number)
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind("SeatPool"))}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, podmeta.AnnotationTemplateHash, SeatHash(template))
	return pod
}

// Take gives a seat a model, in its metadata alone: all in one write.
func Take(seat *corev1.Pod, of podmeta.Assignment, modelCache string) {
	clearSeat(seat, podmeta.Status{State: decide.StateWaiting, Reason: string(decide.NotServing), Message: "it was given the model of " + of.Model, Since: of.Since.Truncate(time.Second), Seat: of.ID()})
	seat.Annotations[podmeta.AnnotationSeat] = of.Encode()
	seat.Annotations[podmeta.AnnotationInferenceServerConfig] = of.Config
	if modelCache != "" {
		seat.Annotations[podmeta.AnnotationModelCache] = modelCache
	}
	seat.Labels[podmeta.LabelModel], seat.Labels[podmeta.LabelModelEntry] = of.Model, of.Entry
}

// Give takes the model from a seat, also in one write.
func Give(seat *corev1.Pod, now time.Time) {
	clearSeat(seat, podmeta.Status{State: decide.StateWaiting, Reason: string(decide.NoModel), Message: decide.SeatHasNoModel, Since: now.UTC().Truncate(time.Second)})
}

// Leave has a seat take no new requests.
func Leave(seat *corev1.Pod, now time.Time) {
	seat.Labels, seat.Annotations = maps.Clone(seat.Labels), maps.Clone(seat.Annotations)
	delete(seat.Labels, podmeta.LabelServes)
	of := podmeta.ReadAssignment(seat)
	of.Leaves = now.UTC()
	seat.Annotations[podmeta.AnnotationSeat] = of.Encode()
}

// Stay has a seat that leaves its model take requests again.
func Stay(seat *corev1.Pod) {
	seat.Annotations = maps.Clone(seat.Annotations)
	of := podmeta.ReadAssignment(seat)
	of.Leaves = time.Time{}
	seat.Annotations[podmeta.AnnotationSeat] = of.Encode()
}

// clearSeat removes all metadata about a seat's model. The status keeps its GPUs and its launcher.
func clearSeat(seat *corev1.Pod, status podmeta.Status) {
	seat.Labels, seat.Annotations = maps.Clone(seat.Labels), maps.Clone(seat.Annotations)
	for _, key := range []string{podmeta.LabelModel, podmeta.LabelModelEntry, podmeta.LabelServes} {
		delete(seat.Labels, key)
	}
	for _, key := range slices.Concat(podmeta.EngineAnnotations, []string{podmeta.AnnotationSeat, podmeta.AnnotationServed, corev1.PodDeletionCost}) {
		delete(seat.Annotations, key)
	}
	was := podmeta.ReadStatus(seat)
	status.GPUs, status.Launcher = was.GPUs, was.Launcher
	seat.Annotations[podmeta.AnnotationStatus] = status.Encode()
}
