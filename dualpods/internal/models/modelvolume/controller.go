package modelvolume

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Controller reconciles the volumes and claims of all caches. It runs one pass at a time.
type Controller struct {
	// API reads from a cache and writes to the API server. The cache indexes Pods by Index,
	// and holds only volumes with the label podmeta.LabelModelVolume.
	API      client.Client
	Recorder events.EventRecorder
	Now      func() time.Time
	// Namespace is the only namespace that the controller watches. It then ignores volumes and
	// ClusterModelCaches, which are cluster-scoped, and creates nothing. Empty: all namespaces.
	Namespace string

	told  map[notice]bool      // reports of the last pass to Pods
	taken map[string]time.Time // when the name of an object was first found taken, though the cache shows no such object
}

// notice is a report that a Pod got as an Event.
type notice struct {
	pod     types.UID
	message string
}

// Reconcile runs a pass; it ignores the request.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if c.Namespace != "" {
		return reconcile.Result{}, c.makeNothing(ctx)
	}
	w, err := c.observe(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	plan := Decide(w)
	errs, result := c.make(ctx, plan)
	for _, o := range plan.Delete {
		if err := c.API.Delete(ctx, o, client.Preconditions{UID: ptr(o.GetUID())}); err != nil && !gone(err) {
			errs = append(errs, fmt.Errorf("cannot delete %s: %w", named(o), err))
		}
	}
	c.tell(plan.Told)
	return result, errors.Join(errs...)
}

// makeNothing reports to Pods whose claims do not exist that the controller creates none.
func (c *Controller) makeNothing(ctx context.Context) error {
	var pods corev1.PodList
	if err := c.API.List(ctx, &pods, client.MatchingFields{Index: NamesOne}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("cannot list the Pods that mount models: %w", err)
	}
	var told []Told
	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, cache := range Named(pod) {
			name := ClaimOf(cache)
			err := c.API.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, &corev1.PersistentVolumeClaim{})
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("cannot read the claim %s: %w", name, err)
			}
			if err != nil {
				told = append(told, Told{Pod: pod, Reason: ReasonOneNamespace, Message: fmt.Sprintf("the claim %s is not created: this release of hotseat watches only namespace %s and ignores ClusterModelCaches", name, c.Namespace)})
			}
		}
	}
	c.tell(told)
	return nil
}

// behind bounds the time until the cache shows a new object.
const behind = 2 * time.Second

// make creates objects, and reports to Pods what it cannot create for them. The cache soon shows
// an object that exists already, unless the object belongs to another owner.
func (c *Controller) make(ctx context.Context, plan *Plan) (errs []error, result reconcile.Result) {
	before := c.taken
	c.taken = map[string]time.Time{}
	for _, m := range plan.Make {
		name := named(m)
		err := c.API.Create(ctx, m.Object)
		if apierrors.IsAlreadyExists(err) {
			since, known := before[name]
			if !known {
				since = c.Now()
			}
			c.taken[name] = since
			if c.Now().Sub(since) < behind {
				result.RequeueAfter = behind
				continue
			}
			err = fmt.Errorf("it exists and belongs to another owner; names that begin with %s are reserved for the controller: %w", podmeta.ModelClaimPrefix, err)
		}
		if err == nil || gone(err) {
			continue
		}
		err = fmt.Errorf("cannot create %s: %w", name, err)
		errs = append(errs, err)
		for _, pod := range m.For {
			plan.Told = append(plan.Told, Told{Pod: pod, Reason: ReasonNotMade, Message: err.Error()})
		}
	}
	return errs, result
}

func ptr[T any](v T) *T { return &v }

func named(o client.Object) string {
	if o.GetNamespace() == "" {
		return "PersistentVolume " + o.GetName()
	}
	return "PersistentVolumeClaim " + o.GetNamespace() + "/" + o.GetName()
}

// gone reports whether nothing is left to do: the object does not exist, or its namespace is
// being deleted.
func gone(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// observe reads the World.
func (c *Controller) observe(ctx context.Context) (*World, error) {
	var caches v1alpha1.ClusterModelCacheList
	var groups v1alpha1.ModelCacheNodeGroupList
	var pods corev1.PodList
	var volumes corev1.PersistentVolumeList
	var claims corev1.PersistentVolumeClaimList
	ours := client.HasLabels{podmeta.LabelModelVolume}
	err := errors.Join(
		c.API.List(ctx, &caches, client.UnsafeDisableDeepCopy), c.API.List(ctx, &groups, client.UnsafeDisableDeepCopy),
		c.API.List(ctx, &pods, client.MatchingFields{Index: NamesOne}, client.UnsafeDisableDeepCopy),
		c.API.List(ctx, &volumes, ours, client.UnsafeDisableDeepCopy), c.API.List(ctx, &claims, ours, client.UnsafeDisableDeepCopy),
	)
	if err != nil {
		return nil, fmt.Errorf("cannot list the volumes of models: %w", err)
	}
	w := &World{
		Caches: map[string]*v1alpha1.ClusterModelCache{}, Groups: map[string]*v1alpha1.ModelCacheNodeGroup{}, Pods: pods.Items,
		Volumes: map[Place]*corev1.PersistentVolume{}, Claims: map[Place]*corev1.PersistentVolumeClaim{},
	}
	for i := range caches.Items {
		w.Caches[caches.Items[i].Name] = &caches.Items[i]
	}
	for i := range groups.Items {
		w.Groups[groups.Items[i].Name] = &groups.Items[i]
	}
	for i := range volumes.Items {
		v := &volumes.Items[i]
		if v.Spec.ClaimRef == nil {
			continue // the controller did not create it
		}
		if at := (Place{v.Labels[podmeta.LabelModelVolume], v.Spec.ClaimRef.Namespace}); v.Name == volumeName(at) {
			w.Volumes[at] = v
		}
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if at := (Place{claim.Labels[podmeta.LabelModelVolume], claim.Namespace}); claim.Name == ClaimOf(at.Cache) {
			w.Claims[at] = claim
		}
	}
	return w, nil
}

// tell emits an Event for each report that the last pass did not have.
func (c *Controller) tell(told []Told) {
	now := map[notice]bool{}
	for _, t := range told {
		n := notice{t.Pod.UID, t.Message}
		if now[n] = true; !c.told[n] {
			c.Recorder.Eventf(t.Pod, nil, corev1.EventTypeWarning, t.Reason, "MountModel", "%s", t.Message)
		}
	}
	c.told = now
}
