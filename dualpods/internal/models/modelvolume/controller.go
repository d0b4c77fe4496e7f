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

// Controller keeps the volumes and claims of all caches. One pass runs at a time.
type Controller struct {
	// API reads from a cache, in which Pods are indexed by Index and of volumes there are
	// those with the label podmeta.LabelModelVolume, and writes to the server.
	API      client.Client
	Recorder events.EventRecorder
	Now      func() time.Time
	// Namespace is the only one that is looked at: volumes and ClusterModelCaches, which are
	// of the whole cluster, are not, and nothing is made. Empty: all are.
	Namespace string

	told  map[notice]bool      // what Pods were told
	taken map[string]time.Time // since when what is to be made is there, though the cache has it not
}

// notice is what a Pod was told.
type notice struct {
	pod     types.UID
	message string
}

// Reconcile makes a pass; what it is asked for does not matter.
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

// makeNothing tells Pods that name claims which are not there that nobody makes those.
func (c *Controller) makeNothing(ctx context.Context) error {
	var pods corev1.PodList
	if err := c.API.List(ctx, &pods, client.MatchingFields{Index: NamesOne}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("cannot look who mounts models: %w", err)
	}
	var told []Told
	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, cache := range Named(pod) {
			name := ClaimOf(cache)
			err := c.API.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, &corev1.PersistentVolumeClaim{})
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("cannot look whether there is a claim %s: %w", name, err)
			}
			if err != nil {
				told = append(told, Told{Pod: pod, Reason: ReasonOneNamespace, Message: fmt.Sprintf("the claim %s is not made: this release of hotseat watches only namespace %s and ignores ClusterModelCaches", name, c.Namespace)})
			}
		}
	}
	c.tell(told)
	return nil
}

// behind is how long the cache may take to show what was made.
const behind = 2 * time.Second

// make makes objects. One that is there already the cache shows in a moment, or never:
// then somebody else has made it. Pods are told of what cannot be made for them.
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
		err = fmt.Errorf("cannot make %s: %w", name, err)
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

// gone says that there is nothing left to do: the namespace or the object is going.
func gone(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// observe reads what a decision rests on.
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
		return nil, fmt.Errorf("cannot look at the volumes of models: %w", err)
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
			continue // nobody's that we made
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

// tell makes Events for Pods that wait in vain, once for each reason.
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
