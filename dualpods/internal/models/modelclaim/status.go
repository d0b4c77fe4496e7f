package modelclaim

import (
	"cmp"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// maxUsers bounds the users of a model that a status names.
const maxUsers = 16

// noneOfTheSource lists causes of failures that say nothing about the source.
var noneOfTheSource = []string{fetchapi.ReasonCapacityExceeded, fetchapi.ReasonClaimNotWritable, v1alpha1.ReasonClaimRefused, v1alpha1.ReasonJobRefused}

// show writes the report to the status of a cache.
func (t *Told) show(c *v1alpha1.ModelCache) {
	s := &c.Status
	s.ObservedGeneration, s.ClaimName, s.Job, s.FailedTries = c.Generation, ClaimName(c), t.Job, t.Tries
	switch o := t.Outcome; {
	case o != nil:
		s.ModelID, s.Revision, s.SizeBytes, s.Size, s.ClaimUID = o.ID, o.Revision, o.Bytes, launcher.BytesText(uint64(o.Bytes)), t.Claim
		s.Lacks = o.Lacks
		s.Folder = path.Join(fetchapi.ClaimStore, "models", o.ID, "files")
	case t.Forget:
		s.ModelID, s.Revision, s.SizeBytes, s.Size, s.ClaimUID, s.Folder, s.Lacks = "", "", 0, "", "", "", false
	}
	s.InUse, s.InUseBy = int32(t.Pods), t.Users[:min(len(t.Users), maxUsers)]
	set := dualpods.NewConditionSetter(&s.Conditions, c.Generation)
	set(v1alpha1.ConditionAvailable, t.Whole, cmp.Or(t.Reason, v1alpha1.ReasonWhole), t.Why)
	switch {
	case s.Revision != "":
		set(v1alpha1.ConditionResolved, true, v1alpha1.ReasonResolved, "")
	case t.Failed != "" && !slices.Contains(noneOfTheSource, t.Cause):
		set(v1alpha1.ConditionResolved, false, t.Cause, t.Failed)
	case t.Tries == 0 || meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionResolved) == nil: // else the condition keeps the last failure
		set(v1alpha1.ConditionResolved, false, v1alpha1.ReasonNotAsked, "the version is known once the model is fetched")
	}
	switch {
	case t.Leaving != "":
		set(v1alpha1.ConditionProgressing, true, v1alpha1.ReasonRemoving, t.Leaving)
	case t.Fetches != "":
		set(v1alpha1.ConditionProgressing, true, v1alpha1.ReasonDownloading, t.Fetches)
	default:
		set(v1alpha1.ConditionProgressing, false, v1alpha1.ReasonIdle, "")
	}
	t.problems(c, set)
}

// problems sets the conditions that may need action.
func (t *Told) problems(c *v1alpha1.ModelCache, set dualpods.ConditionSetter) {
	s := &c.Status
	again := t.Tries > 0 && t.Failed == "" // conditions keep the last failure until a try succeeds
	switch {
	case t.Failed != "":
		set(v1alpha1.ConditionDegraded, true, t.Cause, t.Failed)
	case !again:
		set(v1alpha1.ConditionDegraded, false, v1alpha1.ReasonNoneFailed, "")
	}
	switch {
	case t.Cause == fetchapi.ReasonCapacityExceeded:
		set(v1alpha1.ConditionCapacityExceeded, true, t.Cause, t.Failed)
	case !again:
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionCapacityExceeded)
	}
	t.Credentials.Tell(&s.Conditions, set, t.Denied, again)
	switch {
	case c.DeletionTimestamp.IsZero():
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionDeletionBlocked)
	case t.Blocked != "":
		set(v1alpha1.ConditionDeletionBlocked, true, v1alpha1.ReasonInUse, t.Blocked)
	default:
		set(v1alpha1.ConditionDeletionBlocked, false, v1alpha1.ReasonRemoving, "")
	}
}
