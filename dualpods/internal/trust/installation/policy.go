package installation

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// policyLag is how long an API server may apply a policy whose binding was deleted. It hears of
// the deletion by a watch, and then computes its policies once a second.
// letGoEvery is how often LetGo looks for Pods that were created with its finalizer meanwhile.
const (
	policyLag  = 5 * time.Second
	letGoEvery = time.Second
)

// deletedPolicy is the policy that added the controller's finalizer to new requesters.
type deletedPolicy struct {
	effective time.Time // when it has shown an effect for the last time, or was deleted; zero: there is none
}

// deleteRequesterPolicy deletes the binding of that policy, without which it has no effect.
func deleteRequesterPolicy(ctx context.Context, api client.Client, opts LetGoOptions) (deletedPolicy, error) {
	if opts.RequesterPolicy == "" {
		return deletedPolicy{}, nil
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: opts.RequesterPolicy}}
	switch err := api.Delete(ctx, binding); {
	case meta.IsNoMatchError(err): // the API server has no such policies any more
		return deletedPolicy{}, nil
	case client.IgnoreNotFound(err) != nil: // if it is not found, an earlier attempt may just have deleted it
		return deletedPolicy{}, fmt.Errorf("cannot delete MutatingAdmissionPolicyBinding %s: %w", opts.RequesterPolicy, err)
	}
	opts.Log.Info("new requesters get no finalizer any more", "policy", opts.RequesterPolicy)
	return deletedPolicy{effective: time.Now()}, nil
}

// letGoOfPods removes the controller's finalizers from all Pods, and from those that are created
// with it meanwhile. No API server says when it has heard of the deletion of a policy, and there
// may be several. So letGoOfPods returns once no Pod has come with the finalizer for policyLag.
func (p *deletedPolicy) letGoOfPods(ctx context.Context, api client.Client, opts LetGoOptions) error {
	if _, err := letGoOfPods(ctx, api, opts); err != nil || p.effective.IsZero() {
		return err
	}
	err := wait.PollUntilContextCancel(ctx, letGoEvery, true, func(ctx context.Context) (bool, error) {
		over := time.Since(p.effective) >= policyLag
		found, err := letGoOfPods(ctx, api, opts)
		if found > 0 {
			p.effective = time.Now()
		}
		return over && found == 0, err
	})
	if err != nil {
		return fmt.Errorf("cannot see that no Pod is created with the controller's finalizer any more: %w", err)
	}
	return nil
}
