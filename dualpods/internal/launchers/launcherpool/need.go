package launcherpool

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Lacking returns why a node has no launcher for a need and Create cannot make one
// now. It returns nil when Create can.
func (p *Pool) Lacking(ctx context.Context, need dualpods.LauncherNeed) *dualpods.LauncherWait {
	missing := func(format string, args ...any) *dualpods.LauncherWait {
		return &dualpods.LauncherWait{Missing: true, Why: fmt.Sprintf(format, args...), Stuck: true}
	}
	config, template, err := p.config(ctx, need)
	if err != nil {
		return missing("%v", err)
	}
	var node corev1.Node
	if err := p.opts.API.Get(ctx, client.ObjectKey{Name: need.Node}, &node); err != nil {
		return missing("cannot read node %s: %v", need.Node, err)
	}
	if !labels.SelectorFromSet(template.Spec.NodeSelector).Matches(labels.Set(node.Labels)) {
		return missing("node %s gets no launcher of LauncherConfig %s, which selects nodes with the labels %s",
			need.Node, config.Name, labels.FormatLabels(template.Spec.NodeSelector))
	}
	launchers, err := p.launchers(ctx, config)
	if err != nil {
		return missing("%v", err)
	}
	for _, pod := range launchers {
		if NodeOf(pod) == need.Node {
			return dualpods.WaitForLauncher(pod)
		}
	}
	if config.Spec.Population.Mode == v1alpha1.OnDemand {
		if !p.secretExists(ctx, config) {
			return &dualpods.LauncherWait{Why: fmt.Sprintf("the launchers of LauncherConfig %s have no certificate yet", config.Name)}
		}
		return nil
	}
	return &dualpods.LauncherWait{Why: fmt.Sprintf("DaemonSet %s has no launcher on node %s yet", dualpods.LauncherSet(config.Name), need.Node)}
}

// Create makes a launcher for a need. A launcher that exists already is no error;
// another Pod of that name is.
func (p *Pool) Create(ctx context.Context, need dualpods.LauncherNeed) error {
	config, template, err := p.config(ctx, need)
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
	if err == nil && !metav1.IsControlledBy(&there, config) {
		return fmt.Errorf("another Pod is named %s and is no launcher of LauncherConfig %s: delete it", pod.Name, config.Name)
	}
	return client.IgnoreNotFound(err) // the cache does not show it yet
}

// config returns the LauncherConfig for a need: the one that the need names, else
// the first by name whose launchers have the image.
func (p *Pool) config(ctx context.Context, need dualpods.LauncherNeed) (*v1alpha1.LauncherConfig, corev1.PodTemplateSpec, error) {
	var config v1alpha1.LauncherConfig
	if need.Config != "" {
		err := p.opts.API.Get(ctx, client.ObjectKey{Namespace: need.Namespace, Name: need.Config}, &config)
		if apierrors.IsNotFound(err) {
			return nil, corev1.PodTemplateSpec{}, fmt.Errorf("there is no LauncherConfig %s in namespace %s: make it, or name another one", need.Config, need.Namespace)
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
	for i := range all.Items {
		theirs, _ := all.Items[i].Template()
		if main := podmeta.Container(&theirs.Spec, podmeta.ServingContainer); main != nil && (need.Image == "" || main.Image == need.Image) {
			return p.usableTemplate(ctx, &all.Items[i])
		}
	}
	return nil, corev1.PodTemplateSpec{}, fmt.Errorf("no LauncherConfig of namespace %s has the image %q: make one, or name one in the annotation %s",
		need.Namespace, need.Image, podmeta.AnnotationLauncherConfig)
}

// usableTemplate returns the template of a LauncherConfig, or why it cannot be used.
func (p *Pool) usableTemplate(ctx context.Context, config *v1alpha1.LauncherConfig) (*v1alpha1.LauncherConfig, corev1.PodTemplateSpec, error) {
	if !config.DeletionTimestamp.IsZero() {
		return nil, corev1.PodTemplateSpec{}, fmt.Errorf("LauncherConfig %s is being deleted", config.Name)
	}
	template, problems, err := p.template(ctx, config)
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
