package v1alpha1

import (
	"bytes"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/json"

	"hotseat.dev/hotseat/spec/podmeta"
)

// Template reads the Pod template. A caller must not use a template with problems: unknown
// fields, no container inference-server, no image in it, or a request for GPUs.
func (c *LauncherConfig) Template() (corev1.PodTemplateSpec, []podmeta.Problem) {
	const field = "spec.podTemplate"
	template := corev1.PodTemplateSpec{}
	raw := c.Spec.PodTemplate.Raw
	if len(bytes.TrimSpace(raw)) == 0 {
		return template, []podmeta.Problem{{Kind: podmeta.Invalid, Field: field, Message: "is missing: give a Pod template with a container " + podmeta.ServingContainer}}
	}
	strict, err := json.UnmarshalStrict(raw, &template)
	if err != nil {
		return template, []podmeta.Problem{{Kind: podmeta.Invalid, Field: field, Message: fmt.Sprintf("is not a valid Pod template: %v", err)}}
	}
	var problems []podmeta.Problem
	add := func(field, message string) {
		problems = append(problems, podmeta.Problem{Kind: podmeta.Invalid, Field: field, Message: message})
	}
	for _, err := range strict {
		add(field, fmt.Sprintf("is not a valid Pod template: %v", err))
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
