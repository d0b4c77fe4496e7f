package podgroups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Options configure a [Controller].
type Options struct {
	// API reads from a cache with the index groups.Index, and writes to the API server. Live reads
	// PodGroups from the API server: a cache cannot have a kind that the cluster may lack.
	API  client.Client
	Live client.Reader
	// Definition asks what PodGroups the cluster has: see [ReadDefinition].
	Definition Definitions
	Recorder   events.EventRecorder
	// Leads says that no other replica can be at work by now; nil: there is none.
	Leads func() bool
}

// Controller keeps the PodGroups of ModelServings.
type Controller struct{ opts Options }

// New makes a Controller.
func New(opts Options) *Controller { return &Controller{opts} }

// conflictPause is the pause after a write that was based on a stale cache. membersPause is the pause after Pods
// were deleted, or a PodGroup got its labels again. No watch reports PodGroups, so there is always a next pass:
// after lackPause if something is in the way, and else after restPause. callLimit bounds a call.
const (
	conflictPause = 100 * time.Millisecond
	membersPause  = time.Second
	lackPause     = 30 * time.Second
	restPause     = 5 * time.Minute
	callLimit     = 5 * time.Second
)

// Reconcile runs a pass for one ModelServing.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var serving v1alpha1.ModelServing
	if err := c.opts.API.Get(ctx, request.NamespacedName, &serving); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	told := meta.FindStatusCondition(serving.Status.Conditions, v1alpha1.ConditionPodGroups)
	if concerned, err := c.isConcerned(&serving, told != nil); !concerned {
		return reconcile.Result{}, err
	}
	w, err := c.observe(ctx, &serving)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("cannot observe the PodGroups of ModelServing %s: %w", request, err)
	}
	if c.opts.Leads != nil && !c.opts.Leads() {
		return reconcile.Result{}, dualpods.ErrNotLeading
	}
	steps := slices.Concat(Decide(w), DecideKubernetes(w.Kubernetes))
	failed := c.do(ctx, &serving, steps)
	if apierrors.HasStatusCause(failed, corev1.NamespaceTerminatingCause) {
		return reconcile.Result{}, nil // Kubernetes deletes all objects of the namespace
	}
	if err := errors.Join(failed, c.tell(ctx, &serving, steps, failed == nil)); dualpods.IsStale(err) {
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	for _, s := range steps {
		if len(s.Pods) > 0 || s.Labelled { // new Pods replace them, or the PodGroup has to be read again
			return reconcile.Result{RequeueAfter: membersPause}, nil
		}
		if s.Reason == v1alpha1.ReasonNoVolcano || s.Reason == v1alpha1.ReasonNoPodGroups || s.Reason == v1alpha1.ReasonNameTaken || s.Reason == v1alpha1.ReasonRefused {
			return reconcile.Result{RequeueAfter: lackPause}, nil
		}
	}
	return reconcile.Result{RequeueAfter: restPause}, nil
}

// isConcerned reports whether a ModelServing has PodGroups, or should have. told means that the
// condition says something about them.
func (c *Controller) isConcerned(serving *v1alpha1.ModelServing, told bool) (bool, error) {
	switch {
	case !serving.DeletionTimestamp.IsZero():
		return false, nil
	case serving.Spec.UsesVolcano() || told || serving.Spec.GangScheduler == v1alpha1.GangKubernetes:
		return true, nil
	case serving.Spec.MayUseKubernetes():
		return c.opts.Definition.OfKubernetes()
	default:
		return false, nil
	}
}

func (c *Controller) observe(ctx context.Context, serving *v1alpha1.ModelServing) (*World, error) {
	definition, err := c.opts.Definition()
	if err != nil {
		return nil, err
	}
	w := &World{Serving: serving, Definition: definition}
	var revisions appsv1.ControllerRevisionList
	if err := c.opts.API.List(ctx, &revisions, client.InNamespace(serving.Namespace), client.MatchingFields{groups.Index: string(serving.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list its revisions: %w", err)
	}
	var pods corev1.PodList
	if err := c.opts.API.List(ctx, &pods, client.InNamespace(serving.Namespace), client.MatchingFields{groups.Index: string(serving.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list its Pods: %w", err)
	}
	w.Wanted = groups.WantedGroups(serving, revisions.Items, pods.Items)
	uses := definition.Kubernetes && serving.Spec.MayUseKubernetes()
	w.Kubernetes = &Kubernetes{
		Serving: serving, Wanted: w.Wanted, Pods: map[string]*corev1.Pod{}, Uses: uses,
		Lacking: !definition.Kubernetes && serving.Spec.GangScheduler == v1alpha1.GangKubernetes && serving.Spec.MayUseKubernetes(),
	}
	for i := range pods.Items {
		w.Kubernetes.Pods[pods.Items[i].Name] = &pods.Items[i]
	}
	return w, c.observePodGroups(ctx, w)
}

// observePodGroups reads the PodGroups of the kinds that the cluster has.
func (c *Controller) observePodGroups(ctx context.Context, w *World) error {
	ctx, stop := context.WithTimeout(ctx, callLimit)
	defer stop()
	ours := []client.ListOption{client.InNamespace(w.Serving.Namespace), client.MatchingLabels{podmeta.LabelServing: w.Serving.Name}}
	if !w.Lacking {
		var has volcano.PodGroupList
		if err := c.opts.Live.List(ctx, &has, ours...); err != nil {
			return fmt.Errorf("cannot list its PodGroups of Volcano: %w", err)
		}
		for i := range has.Items {
			w.Has = append(w.Has, &has.Items[i])
		}
	}
	if w.Definition.Kubernetes {
		var has scheduling.PodGroupList
		if err := c.opts.Live.List(ctx, &has, ours...); err != nil {
			return fmt.Errorf("cannot list its PodGroups of Kubernetes: %w", err)
		}
		for i := range has.Items {
			w.Kubernetes.Has = append(w.Kubernetes.Has, &has.Items[i])
		}
	}
	return nil
}

// do takes the steps. It tells of writes that the API server refuses.
func (c *Controller) do(ctx context.Context, serving *v1alpha1.ModelServing, steps []*Step) (err error) {
	for _, s := range steps {
		failed := c.write(ctx, serving, s)
		switch {
		case apierrors.IsInvalid(failed) || apierrors.IsForbidden(failed) && !apierrors.HasStatusCause(failed, corev1.NamespaceTerminatingCause):
			s.waits(v1alpha1.ReasonRefused, fmt.Sprintf("cannot %s PodGroup %s: %s", s.Do, s.Name, failed))
		case failed != nil:
			err = errors.Join(err, fmt.Errorf("cannot %s PodGroup %s: %w", s.Do, s.Name, failed))
		}
	}
	return err
}

func (c *Controller) write(ctx context.Context, serving *v1alpha1.ModelServing, s *Step) error {
	ctx, stop := context.WithTimeout(ctx, callLimit)
	defer stop()
	for _, pod := range s.Pods {
		uid, version := pod.UID, pod.ResourceVersion // a Pod that has got a node since then stays
		if err := c.opts.API.Delete(ctx, pod, client.Preconditions{UID: &uid, ResourceVersion: &version}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot delete Pod %s: %w", client.ObjectKeyFromObject(pod), err)
		}
	}
	switch s.Do {
	case Create:
		err := c.opts.API.Create(ctx, s.Object)
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		return c.labelAgain(ctx, serving, s)
	case Change:
		return client.IgnoreNotFound(c.opts.API.Update(ctx, s.Object))
	case Delete:
		uid := s.Object.GetUID()
		return client.IgnoreNotFound(c.opts.API.Delete(ctx, s.Object, client.Preconditions{UID: &uid}))
	default:
		return nil
	}
}

// labelAgain restores the labels of the PodGroup with the name of a group, if the ModelServing controls it:
// somebody has removed the label by which PodGroups are listed. If another owner controls it, the step says
// that the name is taken.
func (c *Controller) labelAgain(ctx context.Context, serving *v1alpha1.ModelServing, s *Step) error {
	is := s.Object.DeepCopyObject().(client.Object)
	if err := c.opts.Live.Get(ctx, client.ObjectKeyFromObject(s.Object), is); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !metav1.IsControlledBy(is, serving) {
		s.isTaken()
		return nil
	}
	dualpods.SetLabels(is, s.Object.GetLabels())
	s.Labelled = true
	return client.IgnoreNotFound(c.opts.API.Update(ctx, is))
}

// tell writes the condition when it has changed, and emits an Event when it turns false. done means
// that all writes were made.
func (c *Controller) tell(ctx context.Context, serving *v1alpha1.ModelServing, steps []*Step, done bool) error {
	changed := serving.DeepCopy()
	conditions := &changed.Status.Conditions
	switch first := firstInTheWay(steps); {
	case !serving.Spec.UsesVolcano() && !isAbout(steps) && done:
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionPodGroups)
	case first != nil:
		dualpods.NewConditionSetter(conditions, serving.Generation)(v1alpha1.ConditionPodGroups, first.Reason == v1alpha1.ReasonPodGroupKept, first.Reason, first.Why)
	case done:
		dualpods.NewConditionSetter(conditions, serving.Generation)(v1alpha1.ConditionPodGroups, true, v1alpha1.ReasonPodGroupsCreated, "")
	}
	if equality.Semantic.DeepEqual(changed.Status, serving.Status) {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, callLimit)
	defer stop()
	if err := c.opts.API.Status().Update(ctx, changed); err != nil {
		return client.IgnoreNotFound(err)
	}
	was, is := meta.FindStatusCondition(serving.Status.Conditions, v1alpha1.ConditionPodGroups), meta.FindStatusCondition(*conditions, v1alpha1.ConditionPodGroups)
	if is != nil && is.Status == metav1.ConditionFalse && (was == nil || was.Reason != is.Reason) {
		c.opts.Recorder.Eventf(serving, nil, corev1.EventTypeWarning, is.Reason, "Schedule", "%s", dualpods.Truncate(is.Message, decide.MaxNote))
	}
	return nil
}

// isAbout reports whether the ModelServing has or awaits PodGroups.
func isAbout(steps []*Step) bool {
	return slices.ContainsFunc(steps, func(s *Step) bool { return s.Do != Delete && s.Row != rowLeaves })
}

// firstInTheWay returns the first step that something is in the way of. A minimum that is kept comes last.
func firstInTheWay(steps []*Step) (first *Step) {
	for _, s := range steps {
		if s.Reason != "" && (first == nil || first.Reason == v1alpha1.ReasonPodGroupKept && s.Reason != v1alpha1.ReasonPodGroupKept) {
			first = s
		}
	}
	return first
}
