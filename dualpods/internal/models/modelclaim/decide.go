package modelclaim

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Action is the one write of a pass, besides the status.
type Action string

// The actions. The empty Action writes nothing.
const (
	AddFinalizer    Action = "add the finalizer"
	RemoveFinalizer Action = "remove the finalizer"
	MakeClaim       Action = "create the claim"
	ChangeClaim     Action = "change the claim"
	ReleaseClaim    Action = "release the claim"
	DeleteClaim     Action = "delete the claim"
	MakeJob         Action = "create the Job"
	DeleteJob       Action = "delete the Job"
)

// Plan is the result of a decision.
type Plan struct {
	Row   string // row of the tables in spec/modelclaim.md
	Do    Action
	Claim *corev1.PersistentVolumeClaim // for MakeClaim and ChangeClaim: the claim as it should be
	Job   *batchv1.Job                  // for MakeJob
	Told  Told
	Again time.Duration // after which time to decide again, though nothing changes; 0: never
}

// Told is the report on a ModelCache, for its status.
type Told struct {
	Forget  bool              // remove the copy from the status: the claim does not have it
	Outcome *fetchapi.Outcome // outcome of the Job that has just fetched the model
	Claim   types.UID         // UID of the claim that has the model of Outcome

	Whole   bool
	Reason  string // reason of the condition Available, while not Whole
	Why     string // message of the condition Available, while not Whole
	Fetches string // message about the Job that fetches; empty: no Job fetches
	Leaving string // how far the deletion is; empty: the cache is not being deleted
	Cause   string // code of the failure: a reason of fetchapi, or another
	Failed  string // description of the failure; empty: none
	Tries   int32  // consecutive failures

	Credentials sourcesecret.Shown
	Denied      string // how the source refused the credentials
	Blocked     string // why the deletion waits; empty: it does not
	Job         string // name of the Job; empty: none
	Users       []string
	Pods        int
}

// firstPause and longestPause bound the back-off after failures. hearLimit bounds the wait
// until the cache shows an object, and until a new Job has a Pod. startLimit bounds the wait
// until the container of a scheduled Pod runs.
const (
	firstPause   = 10 * time.Second
	longestPause = 5 * time.Minute
	hearLimit    = 10 * time.Second
	startLimit   = time.Minute
)

// Decide decides about a ModelCache by the tables in spec/modelclaim.md, and reports on it.
func Decide(w *World) *Plan {
	p := &Plan{Told: Told{Credentials: w.credentials()}}
	p.Told.Pods = len(w.Users)
	for _, pod := range w.Users {
		p.Told.Users = append(p.Told.Users, "Pod "+pod.Name)
	}
	p.Told.Users = append(p.Told.Users, w.Instances...)
	if w.Job != nil {
		p.Told.Job = w.Job.Name
	}
	if w.Refused != "" {
		p.Told.Cause, p.Told.Failed = v1alpha1.ReasonClaimRefused, w.Refused
	}
	p.Told.Tries = w.Cache.Status.FailedTries
	p.Told.Forget = !w.whole()
	rules := keeping
	if !w.Cache.DeletionTimestamp.IsZero() {
		rules = leaving
	}
	for _, r := range rules {
		if r.fits(w, p) {
			p.Row = r.row
			break
		}
	}
	return p
}

// rule is a row of a table. fits reports whether the row applies, and then fills the plan.
type rule struct {
	row  string
	fits func(*World, *Plan) bool
}

// keeping lists the rows for a ModelCache that is not being deleted.
var keeping = []rule{
	{"no finalizer", func(w *World, p *Plan) bool {
		if controllerutil.ContainsFinalizer(w.Cache, podmeta.FinalizerModelCache) {
			return false
		}
		p.Do = AddFinalizer
		return p.wait(v1alpha1.ReasonPreparing, "the controller has not examined it yet")
	}},
	{"claim missing", func(w *World, p *Plan) bool {
		return w.Claim == nil && w.Cache.Spec.Claim != nil &&
			p.wait(v1alpha1.ReasonClaimMissing, fmt.Sprintf("there is no PersistentVolumeClaim %s, which spec.claim names: create it, or create another ModelCache that names another one", w.claimName()))
	}},
	{"create claim", func(w *World, p *Plan) bool {
		if w.Claim != nil {
			return false
		}
		p.Do, p.Claim = MakeClaim, w.newClaim()
		return p.wait(v1alpha1.ReasonPreparing, "its claim is being created")
	}},
	{"name taken", func(w *World, p *Plan) bool {
		return w.Cache.Spec.Claim == nil && !w.made() &&
			p.wait(v1alpha1.ReasonNameTaken, fmt.Sprintf("PersistentVolumeClaim %s exists and was not created for this ModelCache: name it by spec.claim, or give the ModelCache another name", w.claimName()))
	}},
	{"claim being deleted", func(w *World, p *Plan) bool {
		if w.Claim.DeletionTimestamp.IsZero() {
			return false
		}
		if w.Job != nil && w.Job.DeletionTimestamp.IsZero() {
			p.Do = DeleteJob // the Job's Pod keeps the claim, even after the Pod has finished
		}
		why := fmt.Sprintf("PersistentVolumeClaim %s is being deleted", w.claimName())
		if keep := append(slices.Clone(p.Told.Users[:p.Told.Pods]), w.Done...); len(keep) > 0 {
			why += fmt.Sprintf(", and stays until no Pod mounts it: delete %s", named(keep))
		}
		return p.wait(v1alpha1.ReasonClaimMissing, why)
	}},
	{"change claim", func(w *World, p *Plan) bool {
		claim := w.changedClaim()
		if claim == nil || w.Refused != "" {
			return false
		}
		p.Do, p.Claim = ChangeClaim, claim
		if p.Told.Whole = w.whole(); p.Told.Whole {
			return true
		}
		return p.wait(v1alpha1.ReasonPreparing, "its claim is being changed")
	}},
	{"fetched", recordOutcome},
	{"whole", func(w *World, p *Plan) bool {
		if !w.whole() {
			return false
		}
		if w.Job != nil && w.Job.DeletionTimestamp.IsZero() {
			p.Do = DeleteJob
		}
		p.Told.Whole, p.Told.Tries = true, 0
		return true
	}},
	{"Job being deleted", func(w *World, p *Plan) bool {
		return w.Job != nil && !w.Job.DeletionTimestamp.IsZero() && p.wait(v1alpha1.ReasonDownloading, "an earlier Job is ending")
	}},
	{"no credentials", func(w *World, p *Plan) bool {
		if p.Told.Credentials.Problem == "" {
			return false
		}
		if w.Job != nil && w.Found.Unread == "" { // if a read failed, the credentials may be unchanged
			p.Do = DeleteJob
		}
		return p.wait(p.Told.Credentials.Reason, p.Told.Credentials.Problem)
	}},
	{"source missing", func(w *World, p *Plan) bool {
		return w.NoSource && w.Job == nil &&
			p.wait(fetchapi.ReasonNotFound, fmt.Sprintf("there is no PersistentVolumeClaim %s in namespace %s, which spec.source.uri names: create it", SourceClaim(w.Cache), w.Cache.Namespace))
	}},
	{"create Job", func(w *World, p *Plan) bool {
		if w.Job != nil {
			return false
		}
		p.Do, p.Job = MakeJob, w.newJob(p.Told.Credentials, p.Told.Tries+1)
		p.Told.Fetches = "the controller is creating a Job that fetches it"
		return p.wait(v1alpha1.ReasonDownloading, p.Told.Fetches)
	}},
	{"outdated", func(w *World, p *Plan) bool {
		_, failed, _, _ := finished(w.Job)
		want := w.newJob(p.Told.Credentials, 1).Annotations
		has := w.Job.Annotations
		changed := has[podmeta.AnnotationTemplateHash] != want[podmeta.AnnotationTemplateHash]
		if mended := failed && has[annotationInputs] != want[annotationInputs]; !changed && !mended && !w.elsewhere() {
			return false
		}
		p.Do, p.Told.Tries = DeleteJob, 0
		return p.wait(v1alpha1.ReasonDownloading, "its Job is being recreated because its input has changed")
	}},
	{"failed", failedRow},
	{"result lost", func(w *World, p *Plan) bool {
		done, _, since, _ := finished(w.Job)
		if !done { // a complete Job gets here only without an outcome
			return false
		}
		if left := hearLimit - w.Now.Sub(since.Time); left > 0 {
			p.Again = left
		} else {
			p.Do = DeleteJob
		}
		return p.wait(v1alpha1.ReasonDownloading, "the result of its Job is unknown")
	}},
	{"under way", func(w *World, p *Plan) bool {
		p.Told.Fetches = "Job " + w.Job.Name + " fetches it"
		reason, why := w.waits()
		if since := w.placed(); why == "" && !since.IsZero() {
			if left := startLimit - w.Now.Sub(since); left > 0 {
				p.Again = left
			} else {
				reason, why = w.stuck()
			}
		}
		if why == "" {
			reason, why = v1alpha1.ReasonDownloading, p.Told.Fetches
		}
		if len(w.Workers) == 0 && w.Job.Status.Active == 0 { // an event reports each Pod that comes or goes
			if left := hearLimit - w.Now.Sub(w.Job.CreationTimestamp.Time); left > 0 {
				p.Again = left
			} else if reason == v1alpha1.ReasonDownloading {
				reason, why = v1alpha1.ReasonNotReady, fmt.Sprintf("Job %s has no Pod: kubectl describe job/%s says why, for example that a quota or a policy refuses it", w.Job.Name, w.Job.Name)
			}
		}
		return p.wait(reason, why)
	}},
}

// wait reports why the claim does not have the model. It returns true.
func (p *Plan) wait(reason, why string) bool {
	p.Told.Reason, p.Told.Why = reason, why
	return true
}
