package launcherpool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Lacking returns why a node has no launcher for a need and Create cannot make one
// now. It returns nil when Create can.
func (p *Pool) Lacking(ctx context.Context, need dualpods.LauncherNeed) *dualpods.LauncherWait {
	a := absence{need: need}
	node, unread := p.node(ctx, need.Node)
	config, template, err := p.config(ctx, need, node)
	a.node, a.config, a.template, a.err = node, config, &template, cmp.Or(err, unread)
	if a.err != nil {
		return a.wait()
	}
	launchers, err := p.launchers(ctx, config)
	a.err = err
	if at := slices.IndexFunc(launchers, func(pod *corev1.Pod) bool { return NodeOf(pod) == need.Node }); at >= 0 {
		a.launcher = launchers[at]
	}
	a.certified = config.Spec.Population.Mode == v1alpha1.OnDemand && p.secretExists(ctx, config)
	return a.wait()
}

// Create makes a launcher for a need. A launcher that exists already is no error;
// another Pod of that name is. A launcher of an earlier LauncherConfig of the same name is
// left to end by itself: its deletion would end its requesters.
func (p *Pool) Create(ctx context.Context, need dualpods.LauncherNeed) error {
	node, err := p.node(ctx, need.Node)
	if err != nil {
		return err
	}
	config, template, err := p.config(ctx, need, node)
	if err != nil {
		return err
	}
	pod := podOn(config, template, need.Node)
	err = p.opts.API.Create(ctx, pod)
	p.recordCreation(client.ObjectKeyFromObject(config), need.Node, err)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	var there corev1.Pod
	err = p.opts.API.Get(ctx, client.ObjectKeyFromObject(pod), &there)
	switch {
	case err != nil:
		return client.IgnoreNotFound(err)
	case metav1.IsControlledBy(&there, config):
		return nil // the cache does not show it yet
	case !there.DeletionTimestamp.IsZero() || slices.Contains(there.Finalizers, podmeta.FinalizerProvider):
		return fmt.Errorf("the earlier launcher %s still has requesters, or is being deleted: a new one is created once it is gone", pod.Name)
	default:
		return fmt.Errorf("another Pod is named %s and is no launcher of LauncherConfig %s: delete it", pod.Name, config.Name)
	}
}

// config returns the LauncherConfig for a need: the one that the need names, else one
// whose launchers fit. If several fit, config prefers those that can be used and that select
// the node of the need, if the node exists. Among these it takes the first by name.
func (p *Pool) config(ctx context.Context, need dualpods.LauncherNeed, node *corev1.Node) (*v1alpha1.LauncherConfig, corev1.PodTemplateSpec, error) {
	var config v1alpha1.LauncherConfig
	if need.Config != "" {
		err := p.opts.API.Get(ctx, client.ObjectKey{Namespace: need.Namespace, Name: need.Config}, &config)
		if apierrors.IsNotFound(err) {
			return nil, corev1.PodTemplateSpec{}, fmt.Errorf("there is no LauncherConfig %s in namespace %s: create it, or name another one", need.Config, need.Namespace)
		}
		if err != nil {
			return nil, corev1.PodTemplateSpec{}, fmt.Errorf("cannot read LauncherConfig %s: %w", need.Config, err)
		}
		return p.usableTemplate(ctx, &config)
	}
	var all v1alpha1.LauncherConfigList
	if err := p.opts.API.List(ctx, &all, client.InNamespace(need.Namespace)); err != nil {
		return nil, corev1.PodTemplateSpec{}, fmt.Errorf("cannot list the LauncherConfigs of namespace %s: %w", need.Namespace, err)
	}
	slices.SortFunc(all.Items, func(a, b v1alpha1.LauncherConfig) int { return strings.Compare(a.Name, b.Name) })
	var elsewhere *usable // it fits and does not select the node
	var unusable error    // why one that fits cannot be used
	for i := range all.Items {
		theirs, _ := all.Items[i].Template()
		if !need.Fits(&theirs.Spec) {
			continue
		}
		config, template, err := p.usableTemplate(ctx, &all.Items[i])
		switch {
		case err != nil && unusable == nil:
			unusable = err
		case err != nil:
		case node != nil && selects(config, node):
			return config, template, nil
		case elsewhere == nil:
			elsewhere = &usable{config, template}
		}
	}
	switch {
	case elsewhere != nil:
		return elsewhere.config, elsewhere.template, nil
	case unusable != nil:
		return nil, corev1.PodTemplateSpec{}, unusable
	}
	return nil, corev1.PodTemplateSpec{}, fmt.Errorf("no LauncherConfig of namespace %s has the image %q%s: create one, or name one in the annotation %s",
		need.Namespace, need.Image, andMounts(need.Mounts), podmeta.AnnotationLauncherConfig)
}

// usable is a LauncherConfig that can be used, with the Pod template of its launchers.
type usable struct {
	config   *v1alpha1.LauncherConfig
	template corev1.PodTemplateSpec
}

// andMounts names the paths of mounts, for a message.
func andMounts(mounts []dualpods.Mount) string {
	if len(mounts) == 0 {
		return ""
	}
	var paths []string
	for _, m := range mounts {
		paths = append(paths, m.Path)
	}
	return " and mounts the volumes at " + strings.Join(paths, ", ")
}

// selects reports whether a LauncherConfig selects a node.
func selects(config *v1alpha1.LauncherConfig, node *corev1.Node) bool {
	selection := dualpods.SelectionOf(config)
	return selection.Has(node)
}

// usableTemplate returns the template of a LauncherConfig, or why it cannot be used.
func (p *Pool) usableTemplate(ctx context.Context, config *v1alpha1.LauncherConfig) (*v1alpha1.LauncherConfig, corev1.PodTemplateSpec, error) {
	if !config.DeletionTimestamp.IsZero() {
		return nil, corev1.PodTemplateSpec{}, fmt.Errorf("LauncherConfig %s is being deleted", config.Name)
	}
	template, _, problems, err := p.template(ctx, config)
	if err == nil {
		err = problemsError(problems)
	}
	if err != nil {
		return nil, template, fmt.Errorf("LauncherConfig %s cannot be used: %w", config.Name, err)
	}
	if c := acceptedCondition(config); c != nil && c.ObservedGeneration == config.Generation && c.Status == "False" {
		return nil, template, fmt.Errorf("LauncherConfig %s cannot be used: %s", config.Name, c.Message)
	}
	return config, template, nil
}
