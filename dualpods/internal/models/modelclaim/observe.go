package modelclaim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// observe reads the World.
func (c *Controller) observe(ctx context.Context, cache *v1alpha1.ModelCache) (*World, error) {
	w := &World{Now: c.opts.Now(), Image: c.opts.Image, Cache: cache}
	var claim corev1.PersistentVolumeClaim
	there, err := c.get(ctx, w.claimName(), cache.Namespace, &claim)
	if err != nil {
		return nil, err
	}
	if there {
		w.Claim = &claim
		c.heard("PersistentVolumeClaim", &claim)
	} else {
		claim.Namespace, claim.Name = cache.Namespace, w.claimName()
		w.Unheard = c.unheard("PersistentVolumeClaim", &claim)
	}
	var job batchv1.Job
	there, err = c.get(ctx, JobName(cache.Name), cache.Namespace, &job)
	if err != nil {
		return nil, err
	}
	if there && metav1.IsControlledBy(&job, cache) {
		w.Job = &job
		c.heard("Job", &job)
	}
	if source := SourceClaim(cache); source != "" {
		there, err := c.get(ctx, source, cache.Namespace, &corev1.PersistentVolumeClaim{})
		if err != nil {
			return nil, err
		}
		w.NoSource = !there
	}
	w.Found, w.unread = c.opts.Credentials.Read(ctx, Names(cache))
	return w, errors.Join(c.observePods(ctx, w), c.observeClass(ctx, w))
}

func (c *Controller) get(ctx context.Context, name, namespace string, into client.Object) (there bool, err error) {
	err = c.opts.API.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	return err == nil, client.IgnoreNotFound(err)
}

// observePods reads the Pods that mount the claim: the Job's Pods and others.
func (c *Controller) observePods(ctx context.Context, w *World) error {
	if w.Claim == nil {
		return nil
	}
	var pods corev1.PodList
	if err := c.opts.API.List(ctx, &pods, client.InNamespace(w.Cache.Namespace), client.MatchingFields{IndexClaim: w.claimName()}, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		switch {
		case pod.Labels[podmeta.LabelModelCacheUID] == string(w.Cache.UID):
			w.Workers = append(w.Workers, pod)
		case podmeta.Finished(pod):
			if pod.Spec.NodeName != "" {
				w.Done = append(w.Done, "Pod "+pod.Name)
			}
		default:
			w.Users = append(w.Users, pod)
			w.Instances = append(w.Instances, c.instances(w, pod)...)
		}
	}
	slices.SortFunc(w.Users, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(w.Workers, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	slices.Sort(w.Done)
	slices.Sort(w.Instances)
	return nil
}

// instances describes the instances of a launcher that read from the claim. Only launchers
// have a view.
func (c *Controller) instances(w *World, pod *corev1.Pod) (all []string) {
	dir := podmeta.ClaimDir(w.claimName()) + "/"
	c.opts.Launchers.Pick(string(pod.UID), func(_ string, i launcherapi.Instance) bool {
		if strings.HasPrefix(i.ModelPath, dir) {
			all = append(all, fmt.Sprintf("inference server %s of %s", i.InstanceID, pod.Name))
		}
		return false
	})
	return all
}

// observeClass reads whether an unbound claim names a StorageClass that does not exist.
func (c *Controller) observeClass(ctx context.Context, w *World) error {
	if w.Claim == nil || w.Claim.Status.Phase == corev1.ClaimBound || w.Claim.Spec.StorageClassName == nil || *w.Claim.Spec.StorageClassName == "" {
		return nil
	}
	there, err := c.opts.Class(ctx, *w.Claim.Spec.StorageClassName)
	w.NoClass = err == nil && !there
	return err
}
