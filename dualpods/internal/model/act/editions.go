package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// editions is the value of AnnotationEditions: earlier editions of an InferenceServerConfig, which may have sleepers.
type editions struct {
	Hash  string                               `json:"hash"` // of the entry's present edition, whose Pods replace theirs
	Specs []v1alpha1.InferenceServerConfigSpec `json:"specs"`
}

// mostEditions and mostEditionBytes bound the earlier editions that are kept: the annotations of an object may have 256
// KiB in all. Launchers evict the sleepers of older ones.
const (
	mostEditions     = 8
	mostEditionBytes = 128 << 10
)

func (e editions) encode() string {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // this type cannot fail
	}
	return string(text)
}

// editionsOf reads the earlier editions of an InferenceServerConfig. A damaged annotation has none.
func editionsOf(config *v1alpha1.InferenceServerConfig) (all editions) {
	if json.Unmarshal([]byte(config.Annotations[podmeta.AnnotationEditions]), &all) != nil {
		return editions{}
	}
	return all
}

// addEdition notes an edition that a new one replaces.
func addEdition(config *v1alpha1.InferenceServerConfig, earlier v1alpha1.InferenceServerConfigSpec, hash string) {
	all := editionsOf(config)
	all.Hash = hash
	all.Specs = slices.DeleteFunc(append(all.Specs, earlier), func(s v1alpha1.InferenceServerConfigSpec) bool {
		return equality.Semantic.DeepEqual(s, config.Spec) // it has come back
	})
	all.Specs = all.Specs[max(len(all.Specs)-mostEditions, 0):]
	text := all.encode()
	for len(text) > mostEditionBytes && len(all.Specs) > 0 {
		all.Specs = all.Specs[1:]
		text = all.encode()
	}
	metav1.SetMetaDataAnnotation(&config.ObjectMeta, podmeta.AnnotationEditions, text)
}

// forgetEditions deletes the sleepers of the earlier editions of an InferenceServerConfig.
func forgetEditions(ctx context.Context, config *v1alpha1.InferenceServerConfig, forget func(context.Context, *v1alpha1.InferenceServerConfig) error) error {
	var errs []error
	for _, spec := range editionsOf(config).Specs {
		earlier := config.DeepCopy()
		earlier.Spec = spec
		errs = append(errs, forget(ctx, earlier))
	}
	return errors.Join(errs...)
}

// Sweeper deletes the sleepers of earlier editions of entries, once the Pods of the present edition have replaced theirs.
// It is a controller of its own, because launchers may be slow and a Model must not wait for them.
type Sweeper struct{ Options }

// Reconcile looks at the InferenceServerConfig of an entry.
func (s *Sweeper) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var config v1alpha1.InferenceServerConfig
	if err := s.API.Get(ctx, request.NamespacedName, &config); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	owner := metav1.GetControllerOf(&config)
	if config.Annotations[podmeta.AnnotationEditions] == "" || !config.DeletionTimestamp.IsZero() || owner == nil || owner.Kind != "Model" {
		return reconcile.Result{}, nil
	}
	rolled, err := s.isRolled(ctx, &config)
	if err != nil || !rolled {
		return reconcile.Result{}, err // a change of its Deployment or Pods leads to another call
	}
	if s.Leads != nil && !s.Leads() {
		return reconcile.Result{}, dualpods.ErrNotLeading
	}
	if err := forgetEditions(ctx, &config, s.Forget); err != nil {
		return reconcile.Result{}, fmt.Errorf("cannot delete the sleepers of earlier editions of InferenceServerConfig %s: %w", request, err)
	}
	changed := config.DeepCopy()
	delete(changed.Annotations, podmeta.AnnotationEditions)
	err = s.API.Update(ctx, changed)
	if dualpods.IsStale(err) {
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	}
	return reconcile.Result{}, err
}

// isRolled reports whether all replicas of an entry are of its present edition and ready, and no other Pod of it is left.
// While a replica of the new edition does not become ready, the edit may be undone.
func (s *Sweeper) isRolled(ctx context.Context, config *v1alpha1.InferenceServerConfig) (bool, error) {
	if config.Annotations[podmeta.AnnotationSeatsAsked] != "" {
		return s.areSeated(ctx, config)
	}
	var d appsv1.Deployment
	if err := s.API.Get(ctx, client.ObjectKeyFromObject(config), &d); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("cannot read Deployment %s: %w", config.Name, err)
	}
	hash, n := editionsOf(config).Hash, *d.Spec.Replicas
	if d.Spec.Template.Annotations[podmeta.AnnotationTemplateHash] != hash || d.Status.ObservedGeneration != d.Generation ||
		d.Status.Replicas != n || d.Status.UpdatedReplicas != n || d.Status.ReadyReplicas != n {
		return false, nil
	}
	left, err := s.anyPod(ctx, config, func(pod *corev1.Pod) bool {
		return pod.Labels[podmeta.LabelModelEntry] == config.Labels[podmeta.LabelModelEntry] && isOf(pod, &d) && pod.Annotations[podmeta.AnnotationTemplateHash] != hash
	})
	return !left, err
}

// areSeated reports the same for an entry with seats: all its seats serve its present edition.
func (s *Sweeper) areSeated(ctx context.Context, config *v1alpha1.InferenceServerConfig) (bool, error) {
	hash := editionsOf(config).Hash
	if seatsAsked(config).Hash != hash {
		return false, nil
	}
	left, err := s.anyPod(ctx, config, func(pod *corev1.Pod) bool {
		return isSeatOf(pod, config.Labels[podmeta.LabelModel], config.Labels[podmeta.LabelModelEntry]) &&
			(podmeta.ReadAssignment(pod).Hash != hash || !podOf(pod, v1alpha1.RunsInSeats).Ready)
	})
	return !left, err
}

// anyPod reports whether such is true for a Pod of the Model.
func (s *Sweeper) anyPod(ctx context.Context, config *v1alpha1.InferenceServerConfig, such func(*corev1.Pod) bool) (bool, error) {
	var pods corev1.PodList
	if err := s.API.List(ctx, &pods, client.InNamespace(config.Namespace), client.MatchingFields{Index: config.Labels[podmeta.LabelModel]}, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("cannot list Pods: %w", err)
	}
	for i := range pods.Items {
		if such(&pods.Items[i]) {
			return true, nil
		}
	}
	return false, nil
}

// SetupWithManager reconciles an InferenceServerConfig when it, its Deployment or one of its Pods changes.
// Pods are indexed by [Index].
func (s *Sweeper) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	ofPod := func(_ context.Context, o client.Object) []reconcile.Request {
		model, entry := o.GetLabels()[podmeta.LabelModel], o.GetLabels()[podmeta.LabelModelEntry]
		if model == "" || entry == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: model + "-" + entry}}}
	}
	return ctrl.NewControllerManagedBy(mgr).Named("modeleditions").
		For(&v1alpha1.InferenceServerConfig{}).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(ofPod)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofPod)).
		WithOptions(options).
		Complete(s)
}
