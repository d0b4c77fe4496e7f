package act

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods/internal/model/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

// annotationRestartedAt is what `kubectl rollout restart` writes into a Pod template. It stays: a restart is no edit.
// (https://kubernetes.io/docs/reference/labels-annotations-taints/#kubectl-k8s-io-restart-at)
const annotationRestartedAt = "kubectl.kubernetes.io/restartedAt"

// hashOf returns a short hash of objects of Kubernetes.
func hashOf(of ...any) string {
	text, err := json.Marshal(of)
	if err != nil {
		panic(err) // these types cannot fail
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// templateHash returns a hash of a Deployment's Pod template and strategy.
func templateHash(d *appsv1.Deployment) string {
	template := d.Spec.Template
	if template.Annotations[annotationRestartedAt] != "" {
		template.Annotations = maps.Clone(template.Annotations)
		delete(template.Annotations, annotationRestartedAt)
	}
	return hashOf(template, d.Spec.Strategy)
}

// stored returns the value of AnnotationTemplateStored for a Deployment as the API server has stored it.
func stored(d *appsv1.Deployment) string {
	return d.Annotations[podmeta.AnnotationTemplateHash] + "." + templateHash(d)
}

// keepTemplate puts the wanted Pod template into a Deployment. edited reports whether somebody else has edited the template
// since the controller wrote it. stays reports that this edit is not undone: in the mode Off, and during a pause.
func (w *world) keepTemplate(d, want *appsv1.Deployment, pause time.Duration) (edited, stays bool) {
	hash := want.Annotations[podmeta.AnnotationTemplateHash]
	if d.Annotations[podmeta.AnnotationTemplateHash] == hash {
		was := d.Annotations[podmeta.AnnotationTemplateStored]
		edited = strings.HasPrefix(was, hash+".") && was != stored(d)
		stays = edited && (w.mode() == decide.Off || pause > 0)
		if was == stored(d) || stays {
			return edited, stays
		}
	}
	restarted := d.Spec.Template.Annotations[annotationRestartedAt]
	d.Spec.Template, d.Spec.Strategy = want.Spec.Template, want.Spec.Strategy
	if restarted != "" {
		metav1.SetMetaDataAnnotation(&d.Spec.Template.ObjectMeta, annotationRestartedAt, restarted)
	}
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, podmeta.AnnotationTemplateHash, hash)
	return edited, false
}

// noteTemplate notes on a Deployment how its Pod template was stored: with the defaults of the API server and the additions
// of admission webhooks. d is the answer of the API server to the write.
func (c *Controller) noteTemplate(ctx context.Context, d *appsv1.Deployment) error {
	if d.Annotations[podmeta.AnnotationTemplateStored] == stored(d) {
		return nil
	}
	changed := d.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, podmeta.AnnotationTemplateStored, stored(d))
	if err := c.opts.API.Update(ctx, changed); err != nil {
		return fmt.Errorf("cannot note the Pod template of Deployment %s: %w", d.Name, err)
	}
	return nil
}
