package form

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Source reads what requesters ask for: a server patch on the requester, or an
// InferenceServerConfig that it names.
type Source struct {
	API client.Reader // InferenceServerConfigs; commonly a cache
}

// Read returns the form that a requester asks for, or what is wrong with its input. That the
// InferenceServerConfig does not exist is a problem of kind podmeta.Missing: somebody may create
// it at any moment. An error says that it cannot be read.
func (s Source) Read(ctx context.Context, requester *corev1.Pod) (Form, []podmeta.Problem, error) {
	who, problems := podmeta.ReadRequester(requester)
	if len(problems) > 0 {
		return Form{}, problems, nil
	}
	switch who.Input {
	case podmeta.InputNone: // a seat without a model needs no more than its launcher
		return Form{GPUs: who.GPUs, LauncherConfig: who.LauncherConfig}, nil, nil
	case podmeta.InputPatch:
		wanted, problems := FromPatch(requester, who.Patch)
		return wanted.as(who.Rank), problems, nil
	default:
	}
	var config v1alpha1.InferenceServerConfig
	err := s.API.Get(ctx, client.ObjectKey{Namespace: requester.Namespace, Name: who.ConfigName}, &config)
	if apierrors.IsNotFound(err) {
		return Form{}, []podmeta.Problem{{
			Kind: podmeta.Missing, Field: ConfigField,
			Message: fmt.Sprintf("there is no InferenceServerConfig %s in namespace %s: create it, or name another one", who.ConfigName, requester.Namespace),
		}}, nil
	}
	if err != nil {
		return Form{}, nil, fmt.Errorf("cannot read InferenceServerConfig %s: %w", who.ConfigName, err)
	}
	wanted, problems := FromConfig(requester, &config)
	return wanted.as(who.Rank), problems, nil
}

// ConfigField is where a requester names its InferenceServerConfig.
const ConfigField = "metadata.annotations[" + podmeta.AnnotationInferenceServerConfig + "]"

// Need returns what a requester needs a launcher of. A requester whose input is wrong, or whose
// InferenceServerConfig does not exist, needs none: nil.
func (s Source) Need(ctx context.Context, requester *corev1.Pod) (*dualpods.LauncherNeed, error) {
	wanted, problems, err := s.Read(ctx, requester)
	if err != nil || len(problems) > 0 {
		return nil, err
	}
	need := wanted.Need()
	need.Namespace, need.Node = requester.Namespace, requester.Spec.NodeName
	return &need, nil
}
