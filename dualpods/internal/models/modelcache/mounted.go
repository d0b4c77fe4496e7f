package modelcache

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/models/modelvolume"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// mounted says how Pods use a cache's claim.
type mounted struct {
	pods            int    // number of Pods that name the claim
	reason, problem string // why the claim is not created; empty: it is
}

// setClaim sets the claim by which Pods mount the model, and how they use it.
func (t *Report) setClaim(c *v1alpha1.ClusterModelCache, w *World) {
	t.Mounted.reason, t.Mounted.problem = modelvolume.Problem(c, w.Groups)
	switch {
	case t.Mounted.problem != "":
	case t.several:
		t.Mounted.reason = v1alpha1.ReasonSeveralVersions
		t.Mounted.problem = modelvolume.SeveralVersions(c.Name)
	default:
		t.Claim = modelvolume.ClaimOf(c.Name)
	}
	for _, pods := range w.Mounted[c.Name] {
		t.Mounted.pods += len(pods)
	}
}

// setMountable sets the condition Mountable while Pods name the claim.
func (t *Report) setMountable(s *v1alpha1.ClusterModelCacheStatus, set dualpods.ConditionSetter) {
	switch m := t.Mounted; {
	case m.pods == 0:
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionMountable)
	case m.problem != "":
		set(v1alpha1.ConditionMountable, false, m.reason, m.problem)
	default:
		set(v1alpha1.ConditionMountable, true, v1alpha1.ReasonClaimed, fmt.Sprintf("%d Pods name the claim %s", m.pods, t.Claim))
	}
}
