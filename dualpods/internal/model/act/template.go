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
	serversdecide "hotseat.dev/hotseat/dualpods/internal/servers/decide"
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

// edits counts edits of an entry's Pod template by somebody else, each soon after the one before.
type edits struct {
	times int
	last  time.Time // when the last one was undone
}

// undoneAtOnce is how many edits of a Pod template are undone at once. Each undo replaces Pods, so no Pod would live long
// if a program edits again and again.
const undoneAtOnce = 3

// editsPause returns how long the next edit of an entry's Pod template stays; 0: it is undone at once.
func (c *Controller) editsPause(of ofEntry, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.edits[of]
	if now.Sub(e.last) > 2*serversdecide.LongestPause {
		delete(c.edits, of)
		return 0
	}
	if e.times < undoneAtOnce {
		return 0
	}
	return max(e.last.Add(serversdecide.PauseAfter(serversdecide.FirstPause, 1+e.times-undoneAtOnce)).Sub(now), 0)
}

// noteEdit notes that an edit was undone.
func (c *Controller) noteEdit(of ofEntry, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.edits[of] = edits{c.edits[of].times + 1, now}
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
