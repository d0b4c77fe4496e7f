package manager

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// readNeed returns what requesters need a launcher of. A requester whose input is invalid,
// or whose InferenceServerConfig does not exist, needs none: nil.
func readNeed(api client.Reader) func(ctx context.Context, requester *corev1.Pod) (*dualpods.LauncherNeed, error) {
	return func(ctx context.Context, requester *corev1.Pod) (*dualpods.LauncherNeed, error) {
		read, problems := podmeta.ReadRequester(requester)
		if len(problems) > 0 {
			return nil, nil
		}
		var wanted form.Form
		if read.Input == podmeta.InputPatch {
			wanted, problems = form.FromPatch(requester, read.Patch)
		} else {
			var config v1alpha1.InferenceServerConfig
			err := api.Get(ctx, client.ObjectKey{Namespace: requester.Namespace, Name: read.ConfigName}, &config)
			if apierrors.IsNotFound(err) {
				return nil, nil
			}
			if err != nil {
				return nil, fmt.Errorf("cannot read InferenceServerConfig %s: %w", read.ConfigName, err)
			}
			wanted, problems = form.FromConfig(requester, &config)
		}
		if len(problems) > 0 {
			return nil, nil
		}
		need := wanted.Need()
		need.Namespace, need.Node = requester.Namespace, requester.Spec.NodeName
		return &need, nil
	}
}
