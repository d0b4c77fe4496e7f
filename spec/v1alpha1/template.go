package v1alpha1

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/json"

	"hotseat.dev/hotseat/spec/podmeta"
)

// Template reads the Pod template. A caller must not use a template with problems: unknown
// fields, no container inference-server, no image in it, or a request for GPUs.
func (c *LauncherConfig) Template() (corev1.PodTemplateSpec, []podmeta.Problem) {
	const field = "spec.podTemplate"
	raw := c.Spec.PodTemplate.Raw
	if len(bytes.TrimSpace(raw)) == 0 {
		return corev1.PodTemplateSpec{}, []podmeta.Problem{{Kind: podmeta.Invalid, Field: field, Message: "is missing: give a Pod template with a container " + podmeta.ServingContainer}}
	}
	template, problems, ok := readTemplate(raw, field)
	if !ok {
		return template, problems
	}
	add := func(field, message string) {
		problems = append(problems, podmeta.Problem{Kind: podmeta.Invalid, Field: field, Message: message})
	}
	main := podmeta.Container(&template.Spec, podmeta.ServingContainer)
	if main == nil {
		add(field+".spec.containers", "has no container "+podmeta.ServingContainer+": add it, with the image that has vLLM")
	} else if main.Image == "" {
		add(field+".spec.containers["+main.Name+"].image", "is missing: name the image that has vLLM")
	}
	for _, containers := range [][]corev1.Container{template.Spec.InitContainers, template.Spec.Containers} {
		for i := range containers {
			for _, list := range []corev1.ResourceList{containers[i].Resources.Limits, containers[i].Resources.Requests} {
				if q := list[podmeta.ResourceGPU]; !q.IsZero() {
					add(fmt.Sprintf("%s.spec.containers[%s].resources", field, containers[i].Name),
						fmt.Sprintf("requests %s of %s: remove that; a launcher sees every GPU of its node, and GPUs that it requests are lost to requesters", q.String(), podmeta.ResourceGPU))
					break
				}
			}
		}
	}
	return template, problems
}

// PodTemplate reads the Pod template of seats, which may be empty. A caller must not use a template with problems:
// unknown fields, GPUs, and labels and annotations that only the controller writes.
func (p *SeatPool) PodTemplate() (template corev1.PodTemplateSpec, problems []podmeta.Problem) {
	const field = "spec.template"
	if p.Spec.Template == nil || len(bytes.TrimSpace(p.Spec.Template.Raw)) == 0 {
		return template, nil
	}
	template, problems, ok := readTemplate(p.Spec.Template.Raw, field)
	if !ok {
		return template, problems
	}
	add := func(at, message string) {
		problems = append(problems, podmeta.Problem{Kind: podmeta.Invalid, Field: field + at, Message: message})
	}
	if podmeta.HoldsGPUs(&template.Spec) {
		add(".spec.containers", "request "+string(podmeta.ResourceGPU)+": remove that, and say in spec.gpus how many a seat has")
	}
	if len(template.Spec.SchedulingGates) > 0 {
		add(".spec.schedulingGates", "are not opened by the controller: remove them")
	}
	for _, key := range slices.Sorted(maps.Keys(template.Annotations)) {
		if podmeta.IsReservedAnnotation(key) || podmeta.IsEngineAnnotation(key) {
			add(".metadata.annotations["+key+"]", "is the controller's to write: remove it")
		}
	}
	addReservedLabels(template.Labels, add)
	return template, problems
}

// addReservedLabels adds the labels that only the controller writes.
func addReservedLabels(labels map[string]string, add func(at, message string)) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if podmeta.IsReservedLabel(key, labels[key]) {
			add(".metadata.labels["+key+"]", "is the controller's to write: remove it")
		}
	}
}

// EntryPodTemplate reads the Pod template of a role's entry. A caller must not use a template with
// problems: unknown fields, no container, GPUs without a server or a server without GPUs, and
// labels and annotations that only the controller writes. The controller creates the Pods, so the
// admission policies do not look at what users write into the template.
func (r *ServingRole) EntryPodTemplate() (corev1.PodTemplateSpec, []podmeta.Problem) {
	return r.podTemplate("entryTemplate", r.EntryTemplate)
}

// WorkerPodTemplate reads the Pod template of a role's workers, as EntryPodTemplate.
func (r *ServingRole) WorkerPodTemplate() (corev1.PodTemplateSpec, []podmeta.Problem) {
	return r.podTemplate("workerTemplate", r.WorkerTemplate)
}

func (r *ServingRole) podTemplate(name string, raw *runtime.RawExtension) (corev1.PodTemplateSpec, []podmeta.Problem) {
	field := fmt.Sprintf("spec.template.roles[%s].%s", r.Name, name)
	template, problems, ok := readTemplate(raw.Raw, field)
	if !ok {
		return template, problems
	}
	add := func(at, message string) {
		problems = append(problems, podmeta.Problem{Kind: podmeta.Invalid, Field: field + at, Message: message})
	}
	if len(template.Spec.Containers) == 0 {
		add(".spec.containers", "has no container: add one")
	}
	holds, asks := podmeta.HoldsGPUs(&template.Spec), podmeta.IsRequester(&corev1.Pod{ObjectMeta: template.ObjectMeta})
	switch {
	case holds && !asks:
		add(".metadata.annotations", fmt.Sprintf("do not say which server runs on the GPUs that the template requests: add %s or %s", podmeta.AnnotationServerPatch, podmeta.AnnotationInferenceServerConfig))
	case asks && !holds:
		add(".spec.containers", fmt.Sprintf("request no %s, and an annotation asks for a server: request GPUs under resources.limits, or remove the annotation", podmeta.ResourceGPU))
	}
	if _, set := template.Annotations[podmeta.AnnotationOnExit]; set {
		add(".metadata.annotations", "have "+podmeta.AnnotationOnExit+", which is the controller's to add: remove it, and set spec.recoveryPolicy")
	}
	if podmeta.AwaitsGang(&corev1.Pod{Spec: template.Spec}) {
		add(".spec.schedulingGates", "have "+podmeta.GateGang+", which is the controller's to add: remove it, and set spec.template.gangPolicy")
	}
	for _, key := range slices.Sorted(maps.Keys(template.Annotations)) {
		if podmeta.IsReservedAnnotation(key) {
			add(".metadata.annotations["+key+"]", "is the controller's to write: remove it")
		}
	}
	addReservedLabels(template.Labels, add)
	return template, problems
}

// readTemplate reads a Pod template that stands in a field. ok is false if nothing can be read;
// otherwise the problems are unknown fields.
func readTemplate(raw []byte, field string) (template corev1.PodTemplateSpec, problems []podmeta.Problem, ok bool) {
	strict, err := json.UnmarshalStrict(raw, &template)
	ok = err == nil
	for _, err := range append(strict, err) {
		if err != nil {
			problems = append(problems, podmeta.Problem{Kind: podmeta.Invalid, Field: field, Message: fmt.Sprintf("is not a valid Pod template: %v", err)})
		}
	}
	return template, problems, ok
}
