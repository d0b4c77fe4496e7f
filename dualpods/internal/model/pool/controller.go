package pool

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	inference "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Options configure a [Controller].
type Options struct {
	// API reads Models from a cache, and writes to the API server. Live reads InferencePools from the API server: a
	// cache cannot have a kind that the cluster may lack.
	API  client.Client
	Live client.Reader
	// Leads says that no other replica can be at work by now; nil: there is none.
	Leads func() bool
}

// Controller keeps the InferencePools of Models.
type Controller struct{ opts Options }

// New makes a Controller.
func New(opts Options) *Controller { return &Controller{opts} }

// conflictPause is the pause after a write that was based on a stale cache. No watch tells of InferencePools:
// lackPause is the pause before the next pass while something is in the way, restPause while nothing is. callLimit
// bounds a call.
const (
	conflictPause = 100 * time.Millisecond
	lackPause     = 30 * time.Second
	restPause     = 5 * time.Minute
	callLimit     = 5 * time.Second
)

// SetupWithManager reconciles a Model when its spec changes.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("inferencepools").
		For(&v1alpha1.Model{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).Complete(c)
}

// Reconcile runs a pass for one Model. The InferencePool of a deleted Model goes with its owner.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var model v1alpha1.Model
	if err := c.opts.API.Get(ctx, request.NamespacedName, &model); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	told := meta.FindStatusCondition(model.Status.Conditions, v1alpha1.ConditionInferencePool)
	if !model.DeletionTimestamp.IsZero() || !asksForPool(&model) && told == nil {
		return reconcile.Result{}, nil
	}
	if c.opts.Leads != nil && !c.opts.Leads() {
		return reconcile.Result{}, dualpods.ErrNotLeading
	}
	ctx, stop := context.WithTimeout(ctx, callLimit)
	defer stop()
	if told == nil {
		// The condition comes before the object. So a controller that is killed between the two leaves no
		// InferencePool that the next controller does not know of.
		if err := c.tell(ctx, &model, pending()); err != nil {
			return pauseFor(err)
		}
	}
	o, err := c.keep(ctx, &model)
	if err == nil {
		err = c.tell(ctx, &model, o)
	}
	if err != nil {
		return pauseFor(err)
	}
	return reconcile.Result{RequeueAfter: o.again}, nil
}

// pauseFor returns the result of a pass that has failed.
func pauseFor(err error) (reconcile.Result, error) {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconcile.Result{}, nil // Kubernetes deletes all objects of the namespace
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	default:
		return reconcile.Result{}, client.IgnoreNotFound(err) // the Model is gone
	}
}

func asksForPool(m *v1alpha1.Model) bool {
	return m.Spec.Gateway != nil && m.Spec.Gateway.InferencePool != nil
}

// outcome is what the condition says.
type outcome struct {
	kept            bool
	reason, message string        // no reason: there is no condition
	again           time.Duration // until the next pass; 0: the next change of the Model
}

// keep creates, changes or deletes the InferencePool of a Model.
func (c *Controller) keep(ctx context.Context, m *v1alpha1.Model) (*outcome, error) {
	var has inference.InferencePool
	err := c.opts.Live.Get(ctx, client.ObjectKeyFromObject(m), &has)
	exists := err == nil
	switch {
	case err == nil || apierrors.IsNotFound(err):
	case !meta.IsNoMatchError(err):
		return nil, fmt.Errorf("cannot read InferencePool %s: %w", m.Name, err)
	case !asksForPool(m):
		return &outcome{}, nil
	default:
		return lacks(), nil
	}
	isOurs := exists && metav1.IsControlledBy(&has, m)
	switch {
	case !asksForPool(m) && !isOurs:
		return &outcome{}, nil
	case !asksForPool(m):
		uid := has.UID
		err := c.opts.API.Delete(ctx, &has, client.Preconditions{UID: &uid})
		return &outcome{}, client.IgnoreNotFound(err)
	case !exists:
		return refused(c.opts.API.Create(ctx, newPool(m)), "create", m.Name)
	case !isOurs:
		return &outcome{reason: v1alpha1.ReasonNameTaken, again: lackPause, message: fmt.Sprintf("InferencePool %s is not of this Model, and is left alone: delete it, or give the Model another name", m.Name)}, nil
	}
	changed := has.DeepCopy()
	want := newPool(m).Spec
	// The API server sets other fields of the spec, such as appProtocol.
	changed.Spec.Selector, changed.Spec.TargetPorts, changed.Spec.EndpointPickerRef = want.Selector, want.TargetPorts, want.EndpointPickerRef
	if equality.Semantic.DeepEqual(changed.Spec, has.Spec) {
		return kept(), nil
	}
	return refused(c.opts.API.Update(ctx, changed), "change", m.Name)
}

func kept() *outcome {
	return &outcome{kept: true, reason: v1alpha1.ReasonPoolKept, message: "the InferencePool selects the Pods that serve the Model", again: restPause}
}

func pending() *outcome {
	return &outcome{reason: v1alpha1.ReasonPoolPending, message: "the controller is about to create the InferencePool", again: conflictPause}
}

func lacks() *outcome {
	return &outcome{
		reason: v1alpha1.ReasonNoInferencePool, again: lackPause,
		message: fmt.Sprintf("the cluster has no InferencePools of the version %s: install their CRD, or remove gateway.inferencePool", inference.GroupVersion),
	}
}

// refused returns the outcome of a write.
func refused(err error, verb, name string) (*outcome, error) {
	switch {
	case err == nil:
		return kept(), nil
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err): // the CRD was deleted meanwhile
		return lacks(), nil
	case apierrors.IsAlreadyExists(err):
		return pending(), nil
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return &outcome{reason: v1alpha1.ReasonRefused, message: fmt.Sprintf("cannot %s InferencePool %s: %s", verb, name, err), again: lackPause}, nil
	default:
		return nil, fmt.Errorf("cannot %s InferencePool %s: %w", verb, name, err)
	}
}

// tell writes the condition, if it has changed.
func (c *Controller) tell(ctx context.Context, m *v1alpha1.Model, o *outcome) error {
	before := m.Status.DeepCopy()
	if o.reason == "" {
		meta.RemoveStatusCondition(&m.Status.Conditions, v1alpha1.ConditionInferencePool)
	} else {
		dualpods.NewConditionSetter(&m.Status.Conditions, m.Generation)(v1alpha1.ConditionInferencePool, o.kept, o.reason, o.message)
	}
	if equality.Semantic.DeepEqual(before, &m.Status) {
		return nil
	}
	if err := c.opts.API.Status().Update(ctx, m); err != nil {
		return fmt.Errorf("cannot write the status of Model %s: %w", client.ObjectKeyFromObject(m), err)
	}
	return nil
}
