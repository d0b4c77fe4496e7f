package installation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Engines says what LetGo does with the launchers and their engines.
type Engines string

// The values of Engines.
const (
	// Leave lets launchers and engines run, and requesters forward traffic. A controller
	// that is installed later finds them as they are.
	Leave Engines = "leave"
	// Stop deletes the launchers, which ends their engines, and the requesters that are
	// bound to them, and the EndpointSlices that lead to them.
	Stop Engines = "stop"
)

// LetGoOptions configure [LetGo].
type LetGoOptions struct {
	// Deployment is the controller's Deployment.
	Deployment client.ObjectKey
	// Namespace is the only one that the controller watches; empty: all.
	Namespace string
	Engines   Engines
	// RequesterPolicy is the name of the MutatingAdmissionPolicyBinding by which new requesters
	// get the controller's finalizer; empty: there is none.
	RequesterPolicy string
	Log             logr.Logger
}

// LetGo stops the controller. It removes the controller's finalizers from all Pods and model
// caches, and the labels of models from all nodes. The models themselves stay. New requesters
// get no finalizer any more. LetGo returns once no Pod of the controller is left and, with
// Stop, no launcher, or when ctx ends.
func LetGo(ctx context.Context, api client.Client, opts LetGoOptions) error {
	if opts.Engines != Leave && opts.Engines != Stop {
		return fmt.Errorf("cannot uninstall: --engines is %q, but must be %s or %s", opts.Engines, Leave, Stop)
	}
	policy, err := deleteRequesterPolicy(ctx, api, opts)
	if err != nil {
		return err
	}
	if err := stopController(ctx, api, opts); err != nil {
		return err
	}
	var launchers []*corev1.Pod
	if opts.Engines == Stop {
		if launchers, err = deleteLaunchers(ctx, api, opts); err != nil {
			return err
		}
		if err := deleteSlices(ctx, api, opts); err != nil {
			return err
		}
	}
	if err := policy.letGoOfPods(ctx, api, opts); err != nil {
		return err
	}
	if err := letGoOfModels(ctx, api, opts); err != nil {
		return err
	}
	if opts.Engines == Leave {
		return nil
	}
	return poll(ctx, "the launchers are gone", func(ctx context.Context) (bool, error) {
		for _, pod := range launchers {
			if err := api.Get(ctx, client.ObjectKeyFromObject(pod), &corev1.Pod{}); !apierrors.IsNotFound(err) {
				return false, err
			}
		}
		return true, nil
	})
}

// stopController returns once no Pod of the controller is left. Otherwise the controller
// would add its finalizers again.
func stopController(ctx context.Context, api client.Client, opts LetGoOptions) error {
	var controller appsv1.Deployment
	if err := api.Get(ctx, opts.Deployment, &controller); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("cannot read Deployment %s: %w", opts.Deployment, err)
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":0}}`))
	if err := api.Patch(ctx, &controller, patch); err != nil {
		return fmt.Errorf("cannot scale Deployment %s to 0 replicas: %w", opts.Deployment, err)
	}
	opts.Log.Info("stopping the controller", "deployment", opts.Deployment.String())
	return poll(ctx, "the controller has ended", func(ctx context.Context) (bool, error) {
		var left corev1.PodList
		err := api.List(ctx, &left, client.InNamespace(opts.Deployment.Namespace), client.MatchingLabels(controller.Spec.Selector.MatchLabels))
		return len(left.Items) == 0, err
	})
}

// deleteLaunchers deletes the launchers, and returns them. They stay until their finalizers
// are removed. Strangers, which only have the labels of launchers, are not deleted.
func deleteLaunchers(ctx context.Context, api client.Client, opts LetGoOptions) (launchers []*corev1.Pod, err error) {
	var pods corev1.PodList
	var configs v1alpha1.LauncherConfigList
	if err := errors.Join(api.List(ctx, &pods, client.InNamespace(opts.Namespace), dualpods.LauncherLabels), api.List(ctx, &configs, client.InNamespace(opts.Namespace))); err != nil {
		return nil, fmt.Errorf("cannot list the launchers: %w", err)
	}
	if launchers, err = dualpods.NewLaunchers(api).Among(ctx, pods.Items); err != nil { // before their owners are deleted
		return nil, err
	}
	if err := deleteDaemonSets(ctx, api, configs.Items); err != nil {
		return nil, err
	}
	for _, pod := range launchers {
		if err := client.IgnoreNotFound(api.Delete(ctx, pod)); err != nil {
			return nil, fmt.Errorf("cannot delete launcher %s: %w", client.ObjectKeyFromObject(pod), err)
		}
	}
	return launchers, nil
}

// deleteDaemonSets deletes the DaemonSets that LauncherConfigs own.
func deleteDaemonSets(ctx context.Context, api client.Client, configs []v1alpha1.LauncherConfig) error {
	for i := range configs {
		config := &configs[i]
		var set appsv1.DaemonSet
		err := api.Get(ctx, client.ObjectKey{Namespace: config.Namespace, Name: dualpods.LauncherSet(config.Name)}, &set)
		if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(&set, config) {
			continue
		}
		if err == nil {
			err = client.IgnoreNotFound(api.Delete(ctx, &set, client.PropagationPolicy("Background"), client.Preconditions{UID: &set.UID}))
		}
		if err != nil {
			return fmt.Errorf("cannot delete DaemonSet %s/%s: %w", config.Namespace, dualpods.LauncherSet(config.Name), err)
		}
	}
	return nil
}

// deleteSlices deletes the EndpointSlices that the controller kept.
func deleteSlices(ctx context.Context, api client.Client, opts LetGoOptions) error {
	var slices discoveryv1.EndpointSliceList
	if err := api.List(ctx, &slices, client.InNamespace(opts.Namespace), client.MatchingLabels{discoveryv1.LabelManagedBy: podmeta.ManagedByEndpoints}); err != nil {
		return fmt.Errorf("cannot list the EndpointSlices: %w", err)
	}
	for i := range slices.Items {
		if err := client.IgnoreNotFound(api.Delete(ctx, &slices.Items[i])); err != nil {
			return fmt.Errorf("cannot delete EndpointSlice %s: %w", client.ObjectKeyFromObject(&slices.Items[i]), err)
		}
	}
	return nil
}

// letGoOfPods removes the controller's finalizers from every Pod that has one, and returns how
// many had. With Stop it also deletes the requesters, because their engines have ended.
func letGoOfPods(ctx context.Context, api client.Client, opts LetGoOptions) (found int, err error) {
	var pods corev1.PodList
	if err := api.List(ctx, &pods, client.InNamespace(opts.Namespace)); err != nil {
		return 0, fmt.Errorf("cannot list Pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		requester := podmeta.Held(pod)
		if !requester && !slices.Contains(pod.Finalizers, podmeta.FinalizerProvider) {
			continue
		}
		key := client.ObjectKeyFromObject(pod)
		if requester && opts.Engines == Stop {
			if err := client.IgnoreNotFound(api.Delete(ctx, pod)); err != nil {
				return found, fmt.Errorf("cannot delete requester %s: %w", key, err)
			}
		}
		if err := takeOff(ctx, api, key); err != nil {
			return found, err
		}
		found++
		opts.Log.Info("removed the finalizers", "pod", key.String(), "engines", string(opts.Engines))
	}
	return found, nil
}

// takeOff removes the controller's finalizers from a Pod, and retries after conflicts.
func takeOff(ctx context.Context, api client.Client, key client.ObjectKey) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var pod corev1.Pod
		if err := api.Get(ctx, key, &pod); err != nil {
			return err
		}
		before := pod.DeepCopy()
		pod.Finalizers = slices.DeleteFunc(pod.Finalizers, func(f string) bool {
			return f == podmeta.FinalizerRequester || f == podmeta.FinalizerProvider
		})
		return api.Patch(ctx, &pod, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot remove the finalizers of the controller from Pod %s: %w", key, err)
	}
	return nil
}

// letGoOfModels removes the controller's finalizer from the Models and ModelCaches. If the
// controller watches all namespaces, it also removes the finalizer from the
// ClusterModelCaches, and the labels of models from the nodes.
func letGoOfModels(ctx context.Context, api client.Client, opts LetGoOptions) error {
	err := errors.Join(
		letGoOfKind(ctx, api, opts, "Model", podmeta.FinalizerModel, &v1alpha1.ModelList{}),
		letGoOfKind(ctx, api, opts, "ModelCache", podmeta.FinalizerModelCache, &v1alpha1.ModelCacheList{}),
	)
	if opts.Namespace != "" {
		return err
	}
	return errors.Join(err, letGoOfKind(ctx, api, opts, "ClusterModelCache", podmeta.FinalizerModelCache, &v1alpha1.ClusterModelCacheList{}), unlabel(ctx, api))
}

// letGoOfKind removes a finalizer from all objects of a kind.
func letGoOfKind(ctx context.Context, api client.Client, opts LetGoOptions, kind, finalizer string, all client.ObjectList) error {
	err := api.List(ctx, all, client.InNamespace(opts.Namespace))
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil // an earlier release of the chart has no such kind
	}
	if err != nil {
		return fmt.Errorf("cannot list the %ss: %w", kind, err)
	}
	return meta.EachListItem(all, func(o runtime.Object) error {
		object := o.(client.Object)
		before := o.DeepCopyObject().(client.Object)
		if !controllerutil.RemoveFinalizer(object, finalizer) {
			return nil
		}
		if err := client.IgnoreNotFound(api.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))); err != nil {
			return fmt.Errorf("cannot remove the finalizer of the controller from %s %s: %w", kind, client.ObjectKeyFromObject(object), err)
		}
		opts.Log.Info("removed the finalizer", strings.ToLower(kind), client.ObjectKeyFromObject(object).String())
		return nil
	})
}

// unlabel removes the labels of models from the nodes, because no controller updates them any
// more. It goes on with the other nodes if it cannot write one.
func unlabel(ctx context.Context, api client.Client) error {
	var nodes corev1.NodeList
	if err := api.List(ctx, &nodes); err != nil {
		return fmt.Errorf("cannot list the nodes: %w", err)
	}
	var errs []error
	for i := range nodes.Items {
		node := &nodes.Items[i]
		before := node.DeepCopy()
		maps.DeleteFunc(node.Labels, func(key, _ string) bool { return strings.HasPrefix(key, podmeta.ModelLabelPrefix) })
		if len(node.Labels) == len(before.Labels) {
			continue
		}
		if err := client.IgnoreNotFound(api.Patch(ctx, node, client.MergeFrom(before))); err != nil {
			errs = append(errs, fmt.Errorf("cannot remove the labels of models from node %s: %w", node.Name, err))
		}
	}
	return errors.Join(errs...)
}

func poll(ctx context.Context, what string, so func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextCancel(ctx, pollEvery, true, so); err != nil {
		return fmt.Errorf("timed out waiting until %s: %w", what, err)
	}
	return nil
}
