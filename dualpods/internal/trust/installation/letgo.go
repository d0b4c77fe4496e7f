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

// Engines says what becomes of the launchers and their engines when the
// controller goes.
type Engines string

// What may become of them.
const (
	// Leave has launchers and engines go on, and requesters carry what they
	// carry. A controller that is installed later finds them as they are.
	Leave Engines = "leave"
	// Stop ends the launchers, and their engines with them, and deletes the
	// requesters that were bound to them, and the EndpointSlices that lead to them.
	Stop Engines = "stop"
)

// LetGoOptions configure [LetGo].
type LetGoOptions struct {
	// Deployment is the controller's.
	Deployment client.ObjectKey
	// Namespace is the only one that the controller looks at; empty for all.
	Namespace string
	Engines   Engines
	Log       logr.Logger
}

// LetGo stops the controller and lets go of all that it holds: no Pod and no model
// cache has a finalizer of ours any more, and no node a label of a model. Models stay
// where they are. It returns once no Pod of the controller is left, and with Stop no
// launcher. The caller bounds it by ctx.
func LetGo(ctx context.Context, api client.Client, opts LetGoOptions) error {
	if opts.Engines != Leave && opts.Engines != Stop {
		return fmt.Errorf("what becomes of the engines is %q: say %s or %s", opts.Engines, Leave, Stop)
	}
	if err := stopController(ctx, api, opts); err != nil {
		return err
	}
	var launchers []*corev1.Pod
	if opts.Engines == Stop {
		var err error
		if launchers, err = deleteLaunchers(ctx, api, opts); err != nil {
			return err
		}
		if err := deleteSlices(ctx, api, opts); err != nil {
			return err
		}
	}
	if err := letGoOfPods(ctx, api, opts); err != nil {
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

// stopController returns once no Pod of the controller is left: it would put
// finalizers on again.
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
		return fmt.Errorf("cannot scale Deployment %s to nothing: %w", opts.Deployment, err)
	}
	opts.Log.Info("the controller ends", "deployment", opts.Deployment.String())
	return poll(ctx, "the controller has ended", func(ctx context.Context) (bool, error) {
		var left corev1.PodList
		err := api.List(ctx, &left, client.InNamespace(opts.Deployment.Namespace), client.MatchingLabels(controller.Spec.Selector.MatchLabels))
		return len(left.Items) == 0, err
	})
}

// deleteLaunchers has Kubernetes end the launchers, and returns them. They go once their
// finalizers do. Pods that only look like launchers stay.
func deleteLaunchers(ctx context.Context, api client.Client, opts LetGoOptions) (launchers []*corev1.Pod, err error) {
	marks := client.MatchingLabels{podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelManagedBy: podmeta.ManagedBy}
	var pods corev1.PodList
	var configs v1alpha1.LauncherConfigList
	if err := errors.Join(api.List(ctx, &pods, client.InNamespace(opts.Namespace), marks), api.List(ctx, &configs, client.InNamespace(opts.Namespace))); err != nil {
		return nil, fmt.Errorf("cannot list the launchers: %w", err)
	}
	if launchers, err = dualpods.NewLaunchers(api).Among(ctx, pods.Items); err != nil { // while what owns them is there
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

// letGoOfPods takes our finalizers off every Pod that has one. With Stop it
// deletes the requesters among them: nobody serves them any more.
func letGoOfPods(ctx context.Context, api client.Client, opts LetGoOptions) error {
	var pods corev1.PodList
	if err := api.List(ctx, &pods, client.InNamespace(opts.Namespace)); err != nil {
		return fmt.Errorf("cannot list Pods: %w", err)
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
				return fmt.Errorf("cannot delete requester %s: %w", key, err)
			}
		}
		if err := takeOff(ctx, api, key); err != nil {
			return err
		}
		opts.Log.Info("let go", "pod", key.String(), "engines", string(opts.Engines))
	}
	return nil
}

// takeOff takes our finalizers off a Pod, whatever others write to it.
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
		return fmt.Errorf("cannot take our finalizers off Pod %s: %w", key, err)
	}
	return nil
}

// letGoOfModels takes our finalizer off the ModelCaches and ClusterModelCaches, and the
// labels of models off the nodes: the last two are those of a controller that looks at all
// namespaces.
func letGoOfModels(ctx context.Context, api client.Client, opts LetGoOptions) error {
	err := letGoOfCaches(ctx, api, opts, "ModelCache", &v1alpha1.ModelCacheList{})
	if opts.Namespace != "" {
		return err
	}
	return errors.Join(err, letGoOfCaches(ctx, api, opts, "ClusterModelCache", &v1alpha1.ClusterModelCacheList{}), unlabel(ctx, api))
}

func letGoOfCaches(ctx context.Context, api client.Client, opts LetGoOptions, kind string, caches client.ObjectList) error {
	err := api.List(ctx, caches, client.InNamespace(opts.Namespace))
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil // a chart from before there were any
	}
	if err != nil {
		return fmt.Errorf("cannot list the %ss: %w", kind, err)
	}
	return meta.EachListItem(caches, func(o runtime.Object) error {
		cache := o.(client.Object)
		before := o.DeepCopyObject().(client.Object)
		if !controllerutil.RemoveFinalizer(cache, podmeta.FinalizerModelCache) {
			return nil
		}
		if err := client.IgnoreNotFound(api.Patch(ctx, cache, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))); err != nil {
			return fmt.Errorf("cannot take our finalizer off %s %s: %w", kind, client.ObjectKeyFromObject(cache), err)
		}
		opts.Log.Info("let go", strings.ToLower(kind), client.ObjectKeyFromObject(cache).String())
		return nil
	})
}

// unlabel takes the labels of models off the nodes: nobody keeps them true any more. A
// node that cannot be written keeps none of the others labelled.
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
			errs = append(errs, fmt.Errorf("cannot take the labels of models off node %s: %w", node.Name, err))
		}
	}
	return errors.Join(errs...)
}

func poll(ctx context.Context, what string, so func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextCancel(ctx, pollEvery, true, so); err != nil {
		return fmt.Errorf("waited in vain until %s: %w", what, err)
	}
	return nil
}
