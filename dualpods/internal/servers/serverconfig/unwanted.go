package serverconfig

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Unwanted returns the instances of a configuration that sleep, and that neither another configuration nor a requester
// of its namespace could wake, by the UIDs of their launchers. config may be an earlier edition: then its present edition
// counts as another configuration.
func (c *Controller) Unwanted(ctx context.Context, config *v1alpha1.InferenceServerConfig) (map[string][]string, error) {
	own, problems := form.CheckConfig(config)
	if len(problems) > 0 {
		return nil, nil
	}
	others, err := c.others(ctx, config)
	if err != nil {
		return nil, err
	}
	launchers, err := c.launchers(ctx, dualpods.NewLaunchers(c.opts.API), config)
	if err != nil {
		return nil, err
	}
	unwanted := map[string][]string{}
	for _, pod := range launchers {
		isOwn := namesOn(pod, own)
		if len(isOwn) == 0 {
			continue
		}
		wanted := namesOn(pod, others...)
		bindings, _ := podmeta.ReadBindings(pod)
		sleeps := func(_ string, i launcherapi.Instance) bool { return i.State == string(launcher.Sleeping) }
		for id, i := range c.opts.Views.Pick(string(pod.UID), sleeps).Instances {
			is := func(name func(gpus []string) string) bool { return name(i.GPUUUIDs) == id }
			isBound := slices.ContainsFunc(bindings, func(b podmeta.Binding) bool { return b.Instance == id })
			if slices.ContainsFunc(isOwn, is) && !slices.ContainsFunc(wanted, is) && !isBound {
				unwanted[string(pod.UID)] = append(unwanted[string(pod.UID)], id)
			}
		}
	}
	return unwanted, nil
}

// namesOn returns what names the instances of forms on a launcher.
func namesOn(pod *corev1.Pod, forms ...form.Form) (all []func(gpus []string) string) {
	for _, f := range forms {
		if on, problems := f.On(&pod.Spec); len(problems) == 0 {
			all = append(all, form.InstanceIDs(on))
		}
	}
	return all
}

// isSame reports whether a configuration is config itself, in the same edition.
func isSame(other, config *v1alpha1.InferenceServerConfig) bool {
	return other.Name == config.Name && equality.Semantic.DeepEqual(other.Spec, config.Spec)
}

// others returns the forms of the other configurations and of the requesters of a namespace.
func (c *Controller) others(ctx context.Context, config *v1alpha1.InferenceServerConfig) (all []form.Form, err error) {
	var configs v1alpha1.InferenceServerConfigList
	var pods corev1.PodList
	if err := c.opts.API.List(ctx, &configs, client.InNamespace(config.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list InferenceServerConfigs: %w", err)
	}
	if err := c.opts.API.List(ctx, &pods, client.InNamespace(config.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list Pods: %w", err)
	}
	for i := range configs.Items {
		other := &configs.Items[i]
		if f, problems := form.CheckConfig(other); !isSame(other, config) && other.DeletionTimestamp.IsZero() && len(problems) == 0 {
			all = append(all, f)
		}
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !podmeta.IsRequester(pod) || podmeta.Finished(pod) {
			continue
		}
		f, problems, err := form.Source{API: c.opts.API}.Read(ctx, pod)
		if err != nil {
			return nil, err
		}
		if len(problems) == 0 {
			all = append(all, f)
		}
	}
	return all, nil
}
