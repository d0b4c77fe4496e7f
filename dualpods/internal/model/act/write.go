package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/model/decide"
	"hotseat.dev/hotseat/dualpods/internal/model/workload"
	"hotseat.dev/hotseat/spec/podmeta"
)

// act does what was decided.
func (c *Controller) act(ctx context.Context, w *world) error {
	var errs []error
	for i, e := range w.entries {
		d := &w.decision.Entries[i]
		err := c.actOn(ctx, w, e, d)
		if err == nil && c.opts.Acted != nil {
			c.opts.Acted(d.Row)
		}
		errs = append(errs, err)
	}
	for _, e := range w.gone {
		errs = append(errs, c.remove(ctx, w, e))
	}
	return errors.Join(errs...)
}

// actOn does what was decided about an entry. Its Pods stop serving before they go.
func (c *Controller) actOn(ctx context.Context, w *world, e *entry, d *decide.EntryDecision) error {
	e.taken, e.takenEnds = "", false // it may be free by now
	if err := c.keepConfig(ctx, w, e); err != nil {
		return err
	}
	for _, pod := range e.pods {
		if err := c.mark(ctx, w, pod, d); err != nil {
			return err
		}
	}
	e.scalePause = c.scalePauseOf(w, e, d)
	for _, pod := range e.pods {
		if e.scalePause > 0 || podmeta.IsSeat(pod) || !slices.Contains(d.Delete, pod.Name) || !pod.DeletionTimestamp.IsZero() {
			continue
		}
		if err := c.opts.API.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot delete Pod %s: %w", pod.Name, err)
		}
	}
	if e.Pool != "" {
		return c.askForSeats(ctx, w, e, d)
	}
	return c.keepDeployment(ctx, w, e, d)
}

// mark writes on a Pod whether it serves, and what it costs to delete it.
func (c *Controller) mark(ctx context.Context, w *world, pod *corev1.Pod, d *decide.EntryDecision) error {
	changed := pod.DeepCopy()
	if slices.Contains(d.Serve, pod.Name) {
		metav1.SetMetaDataLabel(&changed.ObjectMeta, podmeta.LabelServes, w.model.Name)
		if changed.Annotations[podmeta.AnnotationServed] == "" {
			metav1.SetMetaDataAnnotation(&changed.ObjectMeta, podmeta.AnnotationServed, w.now.UTC().Format(time.RFC3339))
		}
	}
	if slices.Contains(d.Unserve, pod.Name) {
		delete(changed.Labels, podmeta.LabelServes)
	}
	if cost, ok := d.Costs[pod.Name]; ok {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, corev1.PodDeletionCost, strconv.Itoa(cost))
	}
	if maps.Equal(changed.Labels, pod.Labels) && maps.Equal(changed.Annotations, pod.Annotations) {
		return nil
	}
	patch := client.MergeFrom(pod)
	if podmeta.IsSeat(pod) { // the seat may have been given to another Model
		patch = client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})
	}
	if err := c.opts.API.Patch(ctx, changed, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot mark Pod %s: %w", pod.Name, err)
	}
	return nil
}

// keepConfig creates or changes the InferenceServerConfig of an entry that launchers run.
func (c *Controller) keepConfig(ctx context.Context, w *world, e *entry) error {
	if e.Problem != "" || !e.RunsIn.HasLauncher() {
		return nil
	}
	want := workload.Config(w.model, &e.Entry)
	hash := hashOf(want.Spec)
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, podmeta.AnnotationTemplateHash, hash)
	if e.config == nil {
		return c.create(ctx, w, e, want)
	}
	changed := e.config.DeepCopy()
	changed.Spec = want.Spec
	delete(changed.Labels, podmeta.LabelSeat)
	maps.Copy(changed.Labels, want.Labels) // it has some, by which it was found
	if e.Pool == "" {
		delete(changed.Annotations, podmeta.AnnotationSeatsAsked)
	}
	same := equality.Semantic.DeepEqual(changed.Spec, e.config.Spec)
	edited := !same && e.config.Annotations[podmeta.AnnotationTemplateHash] == hash
	if !same {
		addEdition(changed, e.config.Spec, e.Hash)
	}
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, podmeta.AnnotationTemplateHash, hash)
	if same && maps.Equal(changed.Labels, e.config.Labels) && maps.Equal(changed.Annotations, e.config.Annotations) {
		return nil
	}
	if err := c.opts.API.Update(ctx, changed); err != nil {
		return fmt.Errorf("cannot change InferenceServerConfig %s: %w", changed.Name, err)
	}
	if edited {
		c.tellEdited(w, e, "InferenceServerConfig "+changed.Name, "edit the Model instead")
	}
	e.config = changed
	return nil
}

// create creates an object of an entry, unless somebody else has one of its name. There may be one of the Model's own
// that the cache does not show yet.
func (c *Controller) create(ctx context.Context, w *world, e *entry, o client.Object) error {
	labels := maps.Clone(o.GetLabels())
	err := c.opts.API.Create(ctx, o)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return fmt.Errorf("cannot create %s %s: %w", kindOf(o), o.GetName(), err)
		}
		return nil
	}
	if err := c.opts.Live.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return fmt.Errorf("cannot read %s %s: %w", kindOf(o), o.GetName(), err)
	}
	if metav1.IsControlledBy(o, w.model) {
		return errors.Join(err, c.restoreLabels(ctx, w, e, o, labels))
	}
	e.takenEnds = !o.GetDeletionTimestamp().IsZero()
	e.taken = fmt.Sprintf("%s %s is not of this Model, and is left alone: delete it, or give the entry another name", kindOf(o), o.GetName())
	return nil
}

// restoreLabels gives an object of the Model the labels without which the cache does not show it.
func (c *Controller) restoreLabels(ctx context.Context, w *world, e *entry, o client.Object, labels map[string]string) error {
	if !dualpods.SetLabels(o, labels) {
		return nil // the cache is behind
	}
	if err := c.opts.API.Update(ctx, o); err != nil {
		return fmt.Errorf("cannot restore the labels of %s %s: %w", kindOf(o), o.GetName(), err)
	}
	c.tellEdited(w, e, "the labels of "+kindOf(o)+" "+o.GetName(), "edit the Model instead")
	return nil
}

func kindOf(o client.Object) string {
	if _, ok := o.(*appsv1.Deployment); ok {
		return "Deployment"
	}
	return "InferenceServerConfig"
}

// keepDeployment creates or changes the Deployment of an entry, with its number of replicas.
func (c *Controller) keepDeployment(ctx context.Context, w *world, e *entry, d *decide.EntryDecision) error {
	if e.deployment == nil {
		if e.Problem != "" || e.taken != "" {
			return nil
		}
		made := w.deploymentOf(e, c.opts.Images, d)
		if err := c.create(ctx, w, e, made); err != nil || e.taken != "" {
			return err
		}
		c.tellMove(w, e, d)
		return c.noteTemplate(ctx, made)
	}
	changed, of := e.deployment.DeepCopy(), ofEntry{client.ObjectKeyFromObject(w.model), e.Name}
	edited, stays := false, e.Problem != "" // its template may be that of an earlier edition, or of somebody else
	if e.Problem == "" {
		pause := c.undoPause(of, writeOfTemplate, w.now)
		if edited, stays = w.keepTemplate(changed, w.deploymentOf(e, c.opts.Images, d), pause); stays {
			e.pause = pause
		}
	}
	e.pause = dualpods.Sooner(e.pause, e.scalePause)
	if d.Write && e.scalePause == 0 {
		replicas := int32(d.Asked.Replicas)
		changed.Spec.Replicas = &replicas
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, podmeta.AnnotationAsked, asked(d))
	}
	if equality.Semantic.DeepEqual(changed, e.deployment) {
		return nil
	}
	if err := c.opts.API.Update(ctx, changed); err != nil {
		return fmt.Errorf("cannot change Deployment %s: %w", changed.Name, err)
	}
	c.tellMove(w, e, d)
	if d.Foreign != "" && e.scalePause == 0 {
		c.tellScaled(w, e, d, c.noteUndo(of, writeOfReplicas, w.now))
	}
	if stays {
		return nil
	}
	if edited && templateHash(changed) != templateHash(e.deployment) { // else an update of the API server has other defaults
		c.noteUndo(of, writeOfTemplate, w.now)
		c.tellEdited(w, e, "the Pod template of Deployment "+changed.Name, "edit the Model instead, or set spec.autoscaling.mode to Off")
	}
	return c.noteTemplate(ctx, changed)
}

// scalePauseOf returns how long the controller leaves a number of replicas that somebody else has written again and again; 0:
// it writes its own number at once, such as when that number has changed.
func (c *Controller) scalePauseOf(w *world, e *entry, d *decide.EntryDecision) time.Duration {
	if d.Foreign == "" || e.deployment == nil || e.deployment.Annotations[podmeta.AnnotationAsked] != asked(d) {
		return 0
	}
	return c.undoPause(ofEntry{client.ObjectKeyFromObject(w.model), e.Name}, writeOfReplicas, w.now)
}

// deploymentOf returns the Deployment that an entry is to have.
func (w *world) deploymentOf(e *entry, images workload.Images, d *decide.EntryDecision) *appsv1.Deployment {
	o := workload.Deployment(w.model, &e.Entry, images, int32(d.Asked.Replicas))
	o.Annotations = map[string]string{podmeta.AnnotationTemplateHash: hashOf(o.Spec.Template, o.Spec.Strategy), podmeta.AnnotationAsked: asked(d)}
	return o
}

func asked(d *decide.EntryDecision) string {
	text, err := json.Marshal(d.Asked)
	if err != nil {
		panic(err) // this type cannot fail
	}
	return string(text)
}

// remove removes the objects of an entry that the Model has not any more: its Pods stop serving first, and its
// InferenceServerConfig goes last, after what sleeps of it.
func (c *Controller) remove(ctx context.Context, w *world, e *entry) error {
	leaves := &decide.EntryDecision{}
	for _, pod := range e.pods {
		leaves.Unserve = append(leaves.Unserve, pod.Name)
	}
	for _, pod := range e.pods {
		if err := c.mark(ctx, w, pod, leaves); err != nil {
			return err
		}
	}
	if e.deployment != nil {
		if !e.deployment.DeletionTimestamp.IsZero() {
			return nil
		}
		err := c.opts.API.Delete(ctx, e.deployment, client.Preconditions{UID: &e.deployment.UID}, client.PropagationPolicy("Foreground"))
		return client.IgnoreNotFound(err)
	}
	if waits, err := c.giveSeatsBack(ctx, e); waits || err != nil {
		return err
	}
	if e.config != nil && e.config.DeletionTimestamp.IsZero() {
		if err := c.forget(ctx, w, e); err != nil {
			return err
		}
		return client.IgnoreNotFound(c.opts.API.Delete(ctx, e.config, client.Preconditions{UID: &e.config.UID}))
	}
	return nil
}
