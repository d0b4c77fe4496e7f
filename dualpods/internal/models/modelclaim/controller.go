package modelclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// IndexClaim is the cache's index of Pods by the claims of their namespace that they mount.
const IndexClaim = "claim"

// IndexedClaims returns a Pod's values in the index IndexClaim.
func IndexedClaims(pod *corev1.Pod) (claims []string) {
	for _, v := range pod.Spec.Volumes {
		if c := v.PersistentVolumeClaim; c != nil && !slices.Contains(claims, c.ClaimName) {
			claims = append(claims, c.ClaimName)
		}
	}
	return claims
}

// Launchers returns what the launchers report, by the UID of their Pods.
type Launchers interface {
	Pick(key string, keep func(id string, i launcherapi.Instance) bool) nodeview.View
}

// Options configure a [Controller].
type Options struct {
	// API reads from a cache and writes to the API server. The cache indexes Pods by
	// IndexClaim, and holds only Jobs with the label podmeta.LabelModelCache.
	API       client.Client
	Launchers Launchers
	// Credentials reads the Secrets and ServiceAccounts that ModelCaches name.
	Credentials sourcesecret.Reader
	// Class reports whether a StorageClass of that name exists.
	Class    func(ctx context.Context, name string) (bool, error)
	Image    string // contains modelfetch
	Recorder events.EventRecorder
	Now      func() time.Time
}

// Controller reconciles ModelCaches. Passes for different ModelCaches may run concurrently.
type Controller struct {
	opts Options
	mu   sync.Mutex
	made map[string]time.Time // when this process created objects that the cache does not show yet, by kind and name
}

// New makes a Controller.
func New(opts Options) *Controller { return &Controller{opts: opts, made: map[string]time.Time{}} }

// conflictPause is the pause after a write conflict. takenPause is the pause before the
// controller tries a name again that another owner's object had. The cache does not hold Jobs
// of other owners, so no event reports their end.
const (
	conflictPause = 100 * time.Millisecond
	takenPause    = 30 * time.Second
)

// Reconcile runs a pass for one ModelCache.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var cache v1alpha1.ModelCache
	if err := c.opts.API.Get(ctx, request.NamespacedName, &cache); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	w, err := c.observe(ctx, &cache)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("cannot observe ModelCache %s: %w", request, err)
	}
	plan := Decide(w)
	err = c.do(ctx, w, plan)
	if plan.Do == ChangeClaim && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) {
		w.Refused = fmt.Sprintf("PersistentVolumeClaim %s cannot be changed as spec.claimTemplate says: %v", w.claimName(), err)
		plan = Decide(w)
		err = c.do(ctx, w, plan)
	}
	if taken, ok := errors.AsType[*takenError](err); ok {
		plan.Told.notMade(v1alpha1.ReasonNameTaken, taken.Error())
		plan.Again, err = takenPause, nil
	} else if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		plan.refused(err)
	}
	err = errors.Join(err, c.tell(ctx, &cache, plan), w.unread)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconcile.Result{}, nil // Kubernetes deletes all objects of the namespace
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: conflictPause}, nil // the cache is stale
	}
	return reconcile.Result{RequeueAfter: plan.Again}, err
}

// refused reports that the API server refused the write of a plan.
func (p *Plan) refused(err error) {
	p.Told.Cause, p.Told.Failed = v1alpha1.ReasonClaimRefused, err.Error()
	if p.Do == MakeJob || p.Do == DeleteJob {
		p.Told.Cause = v1alpha1.ReasonJobRefused
		p.Told.Failed += "; spec.fetch, spec.source and spec.credentials decide what the Job is"
	}
	if p.Do == MakeJob || p.Do == MakeClaim {
		p.Told.notMade(p.Told.Cause, p.Told.Failed)
	}
}

// notMade reports that an object that the model needs could not be created.
func (t *Told) notMade(reason, why string) { t.Reason, t.Why, t.Fetches = reason, why, "" }

// do makes the one write of a plan. It does not write the status.
func (c *Controller) do(ctx context.Context, w *World, p *Plan) error {
	api := c.opts.API
	var err error
	switch p.Do {
	case "":
	case AddFinalizer, RemoveFinalizer:
		changed := w.Cache.DeepCopy()
		if p.Do == AddFinalizer {
			controllerutil.AddFinalizer(changed, podmeta.FinalizerModelCache)
		} else {
			controllerutil.RemoveFinalizer(changed, podmeta.FinalizerModelCache)
		}
		err = api.Patch(ctx, changed, client.MergeFromWithOptions(w.Cache, client.MergeFromWithOptimisticLock{}))
	case MakeClaim:
		err = c.create(ctx, "PersistentVolumeClaim", p.Claim)
	case ChangeClaim:
		err = api.Patch(ctx, p.Claim, client.MergeFromWithOptions(w.Claim, client.MergeFromWithOptimisticLock{}))
	case ReleaseClaim:
		err = api.Patch(ctx, w.released(), client.MergeFromWithOptions(w.Claim, client.MergeFromWithOptimisticLock{}))
	case DeleteClaim:
		err = api.Delete(ctx, w.Claim, client.Preconditions{UID: &w.Claim.UID})
	case MakeJob:
		err = c.create(ctx, "Job", p.Job)
	case DeleteJob: // the Job stays until its Pods are gone, so that no two Pods write to the claim
		err = api.Delete(ctx, w.Job, client.Preconditions{UID: &w.Job.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	}
	if client.IgnoreNotFound(err) == nil {
		return nil
	}
	return fmt.Errorf("cannot %s of ModelCache %s: %w", p.Do, client.ObjectKeyFromObject(w.Cache), err)
}

// tell writes the status when it has changed, and emits Events for changes that may need
// action. It ignores a ModelCache without the finalizer, which is new or about to be gone.
func (c *Controller) tell(ctx context.Context, cache *v1alpha1.ModelCache, p *Plan) error {
	if p.Do == AddFinalizer || p.Do == RemoveFinalizer || !controllerutil.ContainsFinalizer(cache, podmeta.FinalizerModelCache) {
		return nil
	}
	changed := cache.DeepCopy()
	p.Told.show(changed)
	if equality.Semantic.DeepEqual(changed.Status, cache.Status) {
		return nil
	}
	if err := c.opts.API.Status().Update(ctx, changed); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("cannot write the status of ModelCache %s: %w", client.ObjectKeyFromObject(cache), err)
	}
	c.announce(cache, changed)
	return nil
}

// quiet lists reasons that pass without action. They cause no Events.
var quiet = []string{v1alpha1.ReasonDownloading, v1alpha1.ReasonRemoving, v1alpha1.ReasonPreparing, v1alpha1.ReasonNotReady}

func (c *Controller) announce(before, now *v1alpha1.ModelCache) {
	said := map[string]bool{} // messages that need no further Event: two conditions may have the same one
	for _, c := range before.Status.Conditions {
		said[c.Message] = true
	}
	for _, kind := range []string{v1alpha1.ConditionCredentialsAccepted, v1alpha1.ConditionDegraded, v1alpha1.ConditionDeletionBlocked, v1alpha1.ConditionAvailable} {
		was, is := meta.FindStatusCondition(before.Status.Conditions, kind), meta.FindStatusCondition(now.Status.Conditions, kind)
		if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason {
			continue
		}
		good := is.Status == metav1.ConditionTrue
		if kind == v1alpha1.ConditionDegraded || kind == v1alpha1.ConditionDeletionBlocked {
			good = !good
		}
		switch {
		case good && kind == v1alpha1.ConditionAvailable:
			c.opts.Recorder.Eventf(now, nil, corev1.EventTypeNormal, is.Reason, "Keep", "PersistentVolumeClaim %s has the model, revision %s", now.Status.ClaimName, now.Status.Revision)
		case !good && is.Message != "" && !slices.Contains(quiet, is.Reason) && !said[is.Message]:
			said[is.Message] = true
			c.opts.Recorder.Eventf(now, nil, corev1.EventTypeWarning, is.Reason, "Keep", "%s", is.Message)
		}
	}
}

// takenError means that an object of another owner has the name that a ModelCache needs.
type takenError struct{ object string }

func (e *takenError) Error() string {
	return e.object + " exists and was not created for this ModelCache: delete it, or give the ModelCache another name"
}

// create creates an object. It also succeeds when this process has created the object before
// and the cache does not show it yet.
func (c *Controller) create(ctx context.Context, kind string, o client.Object) error {
	name := madeKey(kind, o)
	err := c.opts.API.Create(ctx, o)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, made := c.made[name]
	switch {
	case apierrors.IsAlreadyExists(err) && made:
		return nil
	case apierrors.IsAlreadyExists(err):
		return &takenError{kind + " " + o.GetName()}
	case err == nil:
		c.made[name] = c.opts.Now()
	}
	return err
}

// unheard reports whether this process created an object less than hearLimit ago and has not
// seen it in the cache since. The cache may never show an object that a user deleted at once.
func (c *Controller) unheard(kind string, o client.Object) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	since, made := c.made[madeKey(kind, o)]
	return made && c.opts.Now().Sub(since) < hearLimit
}

// heard forgets that this process created an object, because the cache shows it now.
func (c *Controller) heard(kind string, o client.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.made, madeKey(kind, o))
}

func madeKey(kind string, o client.Object) string {
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}
