package modelclaim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// recordOutcome records the outcome of a complete Job. A later pass deletes the Job, when the
// status has the outcome.
func recordOutcome(w *World, p *Plan) bool {
	if w.Job == nil || w.whole() || !w.Job.DeletionTimestamp.IsZero() {
		return false
	}
	done, _, _, _ := finished(w.Job)
	if o := w.outcome(); done && o != nil && o.Error == nil && o.ID != "" {
		p.Told.Outcome, p.Told.Claim, p.Told.Whole, p.Told.Tries, p.Told.Forget = o, w.Claim.UID, true, 0, false
		return true
	}
	return false
}

// failedRow backs off after a failure, and then deletes the Job, so that a later pass creates
// another one.
func failedRow(w *World, p *Plan) bool {
	_, failed, since, why := finished(w.Job)
	if !failed {
		return false
	}
	cause := v1alpha1.ReasonFailed
	if o := w.outcome(); o != nil && o.Error != nil {
		cause, why = o.Error.Reason, o.Error.Detail
	} else if said := w.lastWords(); said != "" {
		why = said
	}
	why = p.Told.Credentials.Remedy("ModelCache", why, cause)
	tries := triesOf(w.Job)
	p.Told.Tries, p.Told.Cause, p.Told.Failed = tries, cause, why
	if cause == fetchapi.ReasonAccessDenied {
		p.Told.Denied = why
	}
	if cause == fetchapi.ReasonCapacityExceeded {
		p.Told.Failed += w.room()
	}
	p.wait(cause, p.Told.Failed)
	if left := pauseAfter(tries) - w.Now.Sub(since.Time); left > 0 {
		p.Again = left
	} else {
		p.Do = DeleteJob
	}
	return true
}

// pauseAfter returns the back-off after that many consecutive failures.
func pauseAfter(tries int32) time.Duration {
	pause := firstPause
	for range min(tries-1, 10) {
		pause = min(2*pause, longestPause)
	}
	return pause
}

// room describes the size of the claim, and how to make the claim larger.
func (w *World) room() string {
	remedy := "enlarge it; the model is then fetched at once"
	if w.Cache.Spec.ClaimTemplate != nil {
		remedy = "raise spec.claimTemplate.storage, if its StorageClass allows claims to grow"
	}
	return fmt.Sprintf("; PersistentVolumeClaim %s has %s: %s", w.claimName(), launcher.BytesText(uint64(capacity(w.Claim))), remedy)
}

// outcome returns the outcome that the Job's last ended Pod reported; nil: none.
func (w *World) outcome() *fetchapi.Outcome {
	var o fetchapi.Outcome
	if text := w.ended(); text != nil && json.Unmarshal([]byte(text.Message), &o) == nil {
		return &o
	}
	return nil
}

// lastWords describes how the Job's last ended Pod ended: reason, exit code and message. It
// serves for a Pod that reported no error.
func (w *World) lastWords() string {
	text := w.ended()
	if text == nil {
		return ""
	}
	message := strings.TrimSpace(text.Message)
	if message == "" || w.outcome() != nil {
		message = "and it did not say why: the log of its Pod may say more"
	}
	return fmt.Sprintf("%s (%d) %s", cmp.Or(text.Reason, "Error"), text.ExitCode, message)
}

func (w *World) ended() *corev1.ContainerStateTerminated {
	for _, pod := range slices.Backward(w.Workers) {
		for _, s := range pod.Status.ContainerStatuses {
			if s.State.Terminated != nil {
				return s.State.Terminated
			}
		}
	}
	return nil
}

// waits returns why the Job cannot start; empty: Kubernetes reports no reason.
func (w *World) waits() (reason, why string) {
	pending := w.Claim.Status.Phase != corev1.ClaimBound
	if pending && w.NoClass {
		return v1alpha1.ReasonClaimPending, fmt.Sprintf("PersistentVolumeClaim %s is Pending: there is neither the StorageClass %q, which %s names, nor a volume of that class: create one of them, or create another ModelCache with another class", w.claimName(), *w.Claim.Spec.StorageClassName, w.classField())
	}
	if len(w.Workers) > 0 {
		if waits, stuck := podmeta.Waits(w.Workers[len(w.Workers)-1]); stuck {
			return w.notReady(), "Pod " + w.Workers[len(w.Workers)-1].Name + " " + waits
		}
	}
	return "", ""
}

func (w *World) notReady() (reason string) {
	if w.Claim.Status.Phase != corev1.ClaimBound {
		return v1alpha1.ReasonClaimPending
	}
	return v1alpha1.ReasonNotReady
}

// placed returns when the scheduler placed the Job's last Pod, while the Pod is pending. It
// returns zero when the Pod runs, or when no Pod is on a node.
func (w *World) placed() time.Time {
	if len(w.Workers) == 0 || w.Workers[len(w.Workers)-1].Status.Phase != corev1.PodPending {
		return time.Time{}
	}
	for _, c := range w.Workers[len(w.Workers)-1].Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// stuck describes a Pod whose container has not started within startLimit. The kubelet reports
// what is missing only by an Event.
func (w *World) stuck() (reason, why string) {
	pod := w.Workers[len(w.Workers)-1]
	missing := "a volume or an image"
	if name := w.Cache.Spec.Fetch.CAConfigMap; name != "" {
		missing = "ConfigMap " + name + " with the key " + caFile + ", which spec.fetch.caConfigMap names, or " + missing
	}
	return w.notReady(), fmt.Sprintf("Pod %s is on node %s, but its container has not started within %v: kubectl describe pod/%s says why, for example that %s is missing", pod.Name, pod.Spec.NodeName, startLimit, pod.Name, missing)
}

func (w *World) classField() string {
	if w.Cache.Spec.ClaimTemplate != nil {
		return "spec.claimTemplate.storageClassName"
	}
	return "its spec.storageClassName"
}
