package serverconfig

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/launcherpool"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// IndexConfig is the field that Pods are indexed by in the cache: the
// InferenceServerConfig that they ask for.
const IndexConfig = "inferenceServerConfig"

// IndexedConfig is the value of that field.
func IndexedConfig(pod *corev1.Pod) []string {
	if !podmeta.IsRequester(pod) {
		return nil
	}
	read, _ := podmeta.ReadRequester(pod)
	if read.ConfigName == "" {
		return nil
	}
	return []string{read.ConfigName}
}

// Views knows what the launchers say, by the UID of their Pods.
type Views interface {
	Pick(key string, keep func(id string, i launcherapi.Instance) bool) nodeview.View
}

// Options configure a [Controller].
type Options struct {
	// API reads from a cache, in which Pods are indexed by IndexConfig and by
	// launcherpool.IndexConfig, and writes to the server.
	API      client.Client
	Views    Views
	Recorder events.EventRecorder
}

// Controller keeps the status of InferenceServerConfigs.
type Controller struct{ opts Options }

// New makes a Controller.
func New(opts Options) *Controller { return &Controller{opts} }

// conflictPause is when to look again after somebody else was faster.
const conflictPause = 100 * time.Millisecond

// Reconcile looks at one InferenceServerConfig, and writes its status where that
// has changed.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var config v1alpha1.InferenceServerConfig
	err := c.opts.API.Get(ctx, request.NamespacedName, &config)
	if apierrors.IsNotFound(err) || err == nil && !config.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("cannot read InferenceServerConfig %s: %w", request, err)
	}
	f, err := c.look(ctx, &config)
	if err != nil {
		return reconcile.Result{}, err
	}
	changed := config.DeepCopy()
	f.tell(&changed.Status)
	if equality.Semantic.DeepEqual(changed.Status, config.Status) {
		return reconcile.Result{}, nil
	}
	err = c.opts.API.Status().Update(ctx, changed)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictPause}, nil // the cache is behind
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("cannot write the status of InferenceServerConfig %s: %w", request, err)
	}
	before := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionAccepted)
	now := meta.FindStatusCondition(changed.Status.Conditions, v1alpha1.ConditionAccepted)
	if now.Status == metav1.ConditionFalse && (before == nil || before.Message != now.Message) {
		c.opts.Recorder.Eventf(&config, nil, corev1.EventTypeWarning, now.Reason, "Accept", "%s", now.Message)
	}
	return reconcile.Result{}, nil
}

// look reads what the status rests on. Pods are read alone, and not copied: many
// may ask for one configuration.
func (c *Controller) look(ctx context.Context, config *v1alpha1.InferenceServerConfig) (*finding, error) {
	f := &finding{generation: config.Generation, launcherConfig: config.Spec.LauncherConfigName, namespace: config.Namespace}
	var wanted form.Form
	wanted, f.problems = form.CheckConfig(config)
	var pods corev1.PodList
	if err := c.opts.API.List(ctx, &pods, client.InNamespace(config.Namespace), client.MatchingFields{IndexConfig: config.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list the Pods that ask for InferenceServerConfig %s: %w", client.ObjectKeyFromObject(config), err)
	}
	of := dualpods.NewLaunchers(c.opts.API)
	for i := range pods.Items {
		kind, _, err := of.KindOf(ctx, &pods.Items[i])
		if err != nil {
			return nil, err
		}
		if kind.IsRequester() {
			f.requesters = append(f.requesters, &pods.Items[i])
		}
	}
	launchers, err := c.launchers(ctx, of, config)
	if err != nil {
		return nil, err
	}
	f.launchers = len(launchers)
	if len(f.problems) == 0 {
		f.asleep = c.asleep(wanted, launchers)
	}
	var launcherConfig v1alpha1.LauncherConfig
	err = c.opts.API.Get(ctx, client.ObjectKey{Namespace: config.Namespace, Name: config.Spec.LauncherConfigName}, &launcherConfig)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("cannot read LauncherConfig %s: %w", config.Spec.LauncherConfigName, err)
	}
	f.there = err == nil
	return f, nil
}

// launchers returns the launchers of the LauncherConfig that a configuration names.
func (c *Controller) launchers(ctx context.Context, all *dualpods.Launchers, config *v1alpha1.InferenceServerConfig) ([]*corev1.Pod, error) {
	var pods corev1.PodList
	named := client.MatchingFields{launcherpool.IndexConfig: config.Spec.LauncherConfigName}
	if err := c.opts.API.List(ctx, &pods, client.InNamespace(config.Namespace), named, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list the launchers of LauncherConfig %s: %w", config.Spec.LauncherConfigName, err)
	}
	return all.Among(ctx, pods.Items)
}

// asleep counts the instances of a form that sleep, by node.
func (c *Controller) asleep(wanted form.Form, launchers []*corev1.Pod) map[string]int {
	nodes := map[string]int{}
	ids := map[string]func(gpus []string) string{} // by image of the launcher, which is part of an instance's identity
	for _, pod := range launchers {
		on, problems := wanted.On(&pod.Spec)
		if len(problems) > 0 {
			continue
		}
		if ids[on.Image] == nil {
			ids[on.Image] = form.InstanceIDs(on)
		}
		sleeps := func(_ string, i launcherapi.Instance) bool { return i.State == string(launcher.Sleeping) }
		for id, instance := range c.opts.Views.Pick(string(pod.UID), sleeps).Instances {
			if ids[on.Image](instance.GPUUUIDs) == id {
				nodes[pod.Spec.NodeName]++
			}
		}
	}
	return nodes
}
