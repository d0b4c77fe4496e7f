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
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// IndexClaim is the field that Pods are indexed by in the cache: the claims of their
// namespace that they mount.
const IndexClaim = "claim"

// IndexedClaims is the value of that field.
func IndexedClaims(pod *corev1.Pod) (claims []string) {
	for _, v := range pod.Spec.Volumes {
		if c := v.PersistentVolumeClaim; c != nil && !slices.Contains(claims, c.ClaimName) {
			claims = append(claims, c.ClaimName)
		}
	}
	return claims
}

// Launchers knows what the launchers say, by the UID of their Pods.
type Launchers interface {
	View(key string) nodeview.View
}

// Options configure a [Controller].
type Options struct {
	// API reads from a cache, in which Pods are indexed by IndexClaim and which holds those
	// Jobs alone that have the label podmeta.LabelModelCache, and writes to the server.
	API       client.Client
	Launchers Launchers
	// Credentials reads what ModelCaches name.
	Credentials sourcesecret.Reader
	// Class says whether there is a StorageClass of that name.
	Class    func(ctx context.Context, name string) (bool, error)
	Image    string // that has modelfetch
	Recorder events.EventRecorder
	Now      func() time.Time
}

// Controller keeps all ModelCaches. Passes for different ones may run at once.
type Controller struct {
	opts Options
	mu   sync.Mutex
	made map[string]time.Time // by kind and name, when this process has made what the cache has not heard of yet
}

// New makes a Controller.
func New(opts Options) *Controller { return &Controller{opts: opts, made: map[string]time.Time{}} }

// conflictPause is how long is waited after somebody else was faster, and takenPause until
// a Job of somebody else's is looked for again, of which the cache knows nothing.
const (
	conflictPause = 100 * time.Millisecond
	takenPause    = 30 * time.Second
)

// Reconcile looks at one ModelCache.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var cache v1alpha1.ModelCache
	if err := c.opts.API.Get(ctx, request.NamespacedName, &cache); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	w, err := c.observe(ctx, &cache)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("cannot look at ModelCache %s: %w", request, err)
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
		return reconcile.Result{}, nil // everything of it is going
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: conflictPause}, nil // the cache is behind
	}
	return reconcile.Result{RequeueAfter: plan.Again}, err
}

// refused tells that the API server has refused the write of a plan.
func (p *Plan) refused(err error) {
	p.Told.Cause, p.Told.Failed = v1alpha1.ReasonClaimRefused, err.Error()
	if p.Do == MakeJob || p.Do == DeleteJob {
		p.Told.Cause = v1alpha1.ReasonJobRefused
		p.Told.Failed += "; the Job is made from spec.fetch, spec.source and spec.credentials"
	}
	if p.Do == MakeJob || p.Do == MakeClaim {
		p.Told.notMade(p.Told.Cause, p.Told.Failed)
	}
}

// notMade tells that what the model needs could not be made.
func (t *Told) notMade(reason, why string) { t.Reason, t.Why, t.Fetches = reason, why, "" }

// do makes the one write of a plan, but for the status.
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
	case DeleteJob: // it is there until its Pods are gone, so that no two of them are
		err = api.Delete(ctx, w.Job, client.Preconditions{UID: &w.Job.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	}
	if client.IgnoreNotFound(err) == nil {
		return nil
	}
	return fmt.Errorf("cannot %s of ModelCache %s: %w", p.Do, client.ObjectKeyFromObject(w.Cache), err)
}

// tell writes the status where it has changed, and makes Events of what somebody may want
// to act on. What has no finalizer is told nothing: it is new, or gone.
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

// quiet are reasons for not being available that pass by themselves.
var quiet = []string{v1alpha1.ReasonDownloading, v1alpha1.ReasonRemoving, v1alpha1.ReasonPreparing, v1alpha1.ReasonNotReady}

func (c *Controller) announce(before, now *v1alpha1.ModelCache) {
	said := map[string]bool{} // one message under two conditions is one Event
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

// takenError says that an object that a ModelCache is to have is there, and is somebody
// else's.
type takenError struct{ object string }

func (e *takenError) Error() string {
	return e.object + " exists and was not made for this ModelCache: delete it, or give the ModelCache another name"
}

// create makes an object, unless this process has made it before.
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

// unheard says that this process has made an object a moment ago, of which the cache knows
// nothing. One that somebody has deleted at once it may never hear of.
func (c *Controller) unheard(kind string, o client.Object) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	since, made := c.made[madeKey(kind, o)]
	return made && c.opts.Now().Sub(since) < hearLimit
}

// heard forgets an object that this process has made and the cache knows by now.
func (c *Controller) heard(kind string, o client.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.made, madeKey(kind, o))
}

func madeKey(kind string, o client.Object) string {
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}
