package v1alpha1

import (
	"bytes"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/json"

	"hotseat.dev/hotseat/spec/podmeta"
)

// Template reads the Pod template. With problems it should not be used: fields
// that no Pod template has, no container inference-server, no image in it, or
// GPUs asked for.
func (c *LauncherConfig) Template() (corev1.PodTemplateSpec, []podmeta.Problem) {
	const field = "spec.podTemplate"
	template := corev1.PodTemplateSpec{}
	raw := c.Spec.PodTemplate.Raw
	if len(bytes.TrimSpace(raw)) == 0 {
		return template, []podmeta.Problem{{Kind: podmeta.Invalid, Field: field, Message: "is not there: it should be a Pod template with a container " + podmeta.ServingContainer}}
	}
	strict, err := json.UnmarshalStrict(raw, &template)
	if err != nil {
		return template, []podmeta.Problem{{Kind: podmeta.Invalid, Field: field, Message: fmt.Sprintf("is no Pod template: %v", err)}}
	}
	var problems []podmeta.Problem
	add := func(field, message string) {
		problems = append(problems, podmeta.Problem{Kind: podmeta.Invalid, Field: field, Message: message})
	}
	for _, err := range strict {
		add(field, fmt.Sprintf("is no Pod template: %v", err))
	}
	main := podmeta.Container(&template.Spec, podmeta.ServingContainer)
	if main == nil {
		add(field+".spec.containers", "none is named "+podmeta.ServingContainer+": the container of that name should have the image with vLLM")
	} else if main.Image == "" {
		add(field+".spec.containers["+main.Name+"].image", "is not there: it should be the image with vLLM")
	}
	for _, containers := range [][]corev1.Container{template.Spec.InitContainers, template.Spec.Containers} {
		for i := range containers {
			for _, list := range []corev1.ResourceList{containers[i].Resources.Limits, containers[i].Resources.Requests} {
				if q := list[podmeta.ResourceGPU]; !q.IsZero() {
					add(fmt.Sprintf("%s.spec.containers[%s].resources", field, containers[i].Name),
						fmt.Sprintf("asks for %s of %s: a launcher sees every GPU of its node and should ask for none, or requesters could not have them", q.String(), podmeta.ResourceGPU))
					break
				}
			}
		}
	}
	return template, problems
}
