package groups

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// This file compares the templates of two revisions, and makes Pods of the one Pods of the other in
// place. A change that can be made so is one of what engines are told, or of labels and annotations.

// inPlace says why a group of one plan cannot be changed to another in its Pods; empty: it can.
func inPlace(from, to *plan) (why string) {
	a, b := from.template, to.template
	if len(a.Roles) != len(b.Roles) {
		return fmt.Sprintf("it has %d roles instead of %d", len(b.Roles), len(a.Roles))
	}
	if !equality.Semantic.DeepEqual(a.SubGroupPolicy, b.SubGroupPolicy) {
		return "the change is one of subGroupPolicy"
	}
	for order := range a.Roles {
		role := &a.Roles[order]
		if role.Name != b.Roles[order].Name || role.Size() != b.Roles[order].Size() {
			return fmt.Sprintf("it has role %s with %d Pods in each replica instead of role %s with %d", b.Roles[order].Name, b.Roles[order].Size(), role.Name, role.Size())
		}
		for pod := range min(role.Size(), 2) { // the entry, and a worker
			p := place{order: order, pod: pod}
			if why := podInPlace(&from.templates[order], &to.templates[order], p); why != "" {
				return fmt.Sprintf("%s of role %s", why, role.Name)
			}
		}
	}
	return ""
}

// podInPlace says why a Pod cannot be changed in place; empty: it can.
func podInPlace(from, to *templates, p place) (why string) {
	a, b := from.of(p), to.of(p)
	same := func(key string) bool { return sameAnnotation(a, b, key) }
	switch {
	case !equality.Semantic.DeepEqual(a.Spec, b.Spec):
		return "the change is one of the Pods (" + strings.Join(fieldsThatDiffer(&a.Spec, &b.Spec), ", ") + ")"
	case isRequester(a) != isRequester(b):
		return "the change is one of the Pods (whether they are server-requesting Pods)"
	case !same(podmeta.AnnotationLauncherConfig) || !same(podmeta.AnnotationAdminPort):
		return "the change is one of the launcher or the admin port"
	case from.haveRanks() && enginesDiffer(&from.entry, &to.entry) != enginesDiffer(&from.worker, &to.worker):
		return "the change is one of some ranks of a server alone"
	case enginesDiffer(a, b) && needOf(a) != needOf(b):
		return "the change is one of the engine's image, mounts or launcher"
	}
	return ""
}

// fieldsThatDiffer returns the fields in which two specs of Pods differ, as they are spelt in YAML. Of the
// containers it names those of each that differ.
func fieldsThatDiffer(a, b *corev1.PodSpec) (fields []string) {
	x, y := fieldsOf(a), fieldsOf(b)
	for _, key := range differing(x, y) {
		if key != "containers" || len(a.Containers) != len(b.Containers) {
			fields = append(fields, key)
			continue
		}
		for i := range a.Containers {
			for _, of := range differing(fieldsOf(&a.Containers[i]), fieldsOf(&b.Containers[i])) {
				fields = append(fields, of+" of container "+b.Containers[i].Name)
			}
		}
	}
	return fields
}

// fieldsOf returns the fields of an object as they are in JSON.
func fieldsOf(object any) (fields map[string]json.RawMessage) {
	text, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	return fields
}

// differing returns the keys of fields that differ, in order.
func differing(a, b map[string]json.RawMessage) []string {
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(keys)), func(key string) bool { return bytes.Equal(a[key], b[key]) })
}

// sameAnnotation compares an annotation, in both spellings.
func sameAnnotation(a, b *corev1.PodTemplateSpec, key string) bool {
	return slices.Equal(podmeta.Spellings(a.Annotations, key), podmeta.Spellings(b.Annotations, key))
}

// enginesDiffer reports whether the engines of two templates are told different things.
func enginesDiffer(a, b *corev1.PodTemplateSpec) bool {
	return slices.ContainsFunc(podmeta.EngineAnnotations, func(key string) bool {
		x, hasX := a.Annotations[key]
		y, hasY := b.Annotations[key]
		return x != y || hasX != hasY
	})
}

// needOf says what the server patch of a template needs a launcher of. The launcher of a requester
// that names an InferenceServerConfig is compared when the requester is changed.
func needOf(template *corev1.PodTemplateSpec) string {
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	read, problems := podmeta.ReadRequester(pod)
	if read.Input != podmeta.InputPatch || len(problems) > 0 {
		return ""
	}
	wanted, problems := form.FromPatch(pod, read.Patch)
	if len(problems) > 0 { // package binding says what is wrong with it
		return ""
	}
	return fmt.Sprint(wanted.Need())
}

// differsAt reports whether the engine of a Pod is told something else by another plan.
func (of *plan) differsAt(to *plan, p place) bool {
	return enginesDiffer(of.templates[p.order].of(p), to.templates[p.order].of(p))
}

// told returns the Pod of a member that is told of a change, and what its engine is told by a plan.
func (m *Member) told(by *plan, to podmeta.SwapTo) *corev1.Pod {
	pod := m.Pod.Is.DeepCopy()
	if by.places == nil {
		from := by.templates[m.order].of(m.place).Annotations
		for _, key := range podmeta.EngineAnnotations {
			if value, ok := from[key]; ok {
				pod.Annotations[key] = value // a requester has annotations
			} else {
				delete(pod.Annotations, key)
			}
		}
	}
	delete(pod.Annotations, podmeta.AnnotationSwapTo)
	if to.ID() != m.SwapTo.ID() { // the start was one of another change
		delete(pod.Annotations, podmeta.AnnotationNextServer)
	}
	if to.ID() != "" {
		pod.Annotations[podmeta.AnnotationSwapTo] = to.Encode()
	}
	return pod
}

// relabelled returns the Pod of a member with the labels and annotations of its group's revision.
func (w *World) relabelled(m *Member) *corev1.Pod {
	from, to := w.plans[m.revision()], w.planOf(m.place)
	was, is, pod := w.podOf(from, m.place), w.podOf(to, m.place), m.Pod.Is.DeepCopy()
	pod.Labels, pod.Annotations = follow(pod.Labels, was.Labels, is.Labels), follow(pod.Annotations, was.Annotations, is.Annotations)
	delete(pod.Annotations, podmeta.AnnotationSwapTo)
	if next, ok := pod.Annotations[podmeta.AnnotationNextServer]; ok {
		delete(pod.Annotations, podmeta.AnnotationNextServer)
		pod.Annotations[podmeta.AnnotationServer] = next
	}
	return pod
}

// follow changes what is there as it was changed in a template. What others have added or changed stays.
func follow(there, was, is map[string]string) map[string]string {
	if there == nil {
		there = map[string]string{}
	}
	for key, value := range was {
		if _, stays := is[key]; !stays && there[key] == value {
			delete(there, key)
		}
	}
	for key, value := range is {
		if before, had := was[key]; !had || before != value {
			there[key] = value
		}
	}
	return there
}

func (m *Member) revision() string { return m.Pod.Is.Labels[podmeta.LabelServingRevision] }

// isToBeRelabelled reports whether all that a Pod lacks of the revision of its group are labels and
// annotations: its engine is told the same, or was changed in place.
func (w *World) isToBeRelabelled(m *Member) bool {
	from, to := w.plans[m.revision()], w.planOf(m.place)
	if from == nil || from.revision == to.revision || to.places != nil || w.isInvalid(m) || !w.changesInPlace(m.group) || inPlace(from, to) != "" {
		return false
	}
	if m.SwapTo.ID() == "" {
		return !from.differsAt(to, m.place)
	}
	return m.SwapTo.Revision == to.revision && m.isChanged(m.SwapTo)
}

// isBeingChanged reports whether a Pod of a group that has its new models for good gets its own.
func (w *World) isBeingChanged(m *Member) bool {
	was := w.changeOf(m.group)
	return was != nil && was.State == v1alpha1.ChangeCommitted && m.SwapTo.Revision == was.Revision && m.revision() != was.Revision
}

// changesInPlace reports whether Pods of a group may be changed in place.
func (w *World) changesInPlace(group int) bool {
	was := w.changeOf(group)
	return w.Serving.Spec.UpdateMode == v1alpha1.UpdateInPlace || was != nil && was.State == v1alpha1.ChangeCommitted
}

// replaces says that the Pod of another revision is deleted, and why it was not changed in place;
// empty: nobody has asked for that.
func (s *Step) replaces(m *Member, why string) bool {
	reason, text := v1alpha1.ReasonUpdating, "Pod "+m.name()+" of an older template is being replaced"
	if why != "" {
		reason, text = v1alpha1.ReasonNotInPlace, text+", and not changed in place: "+why
	}
	return s.waits(v1alpha1.GroupProgressing, reason, text)
}
