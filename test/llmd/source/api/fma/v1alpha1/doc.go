// +k8s:deepcopy-gen=package
// +groupName=fma.llm-d.ai

package v1alpha1 // import "github.com/llm-d-incubation/llm-d-fast-model-actuation/api/fma/v1alpha1"
