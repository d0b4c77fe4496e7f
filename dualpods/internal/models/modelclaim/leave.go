package modelclaim

import (
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// leaving lists the rows for a ModelCache that is being deleted.
var leaving = []rule{
	{"let go", func(w *World, _ *Plan) bool {
		return !controllerutil.ContainsFinalizer(w.Cache, podmeta.FinalizerModelCache)
	}},
	{"its Job goes", func(w *World, p *Plan) bool {
		if w.Job == nil {
			return false
		}
		if w.Job.DeletionTimestamp.IsZero() {
			p.Do = DeleteJob
		}
		return p.leave("its Job ends")
	}},
	{"claim that was just made", func(w *World, p *Plan) bool {
		if !w.Unheard {
			return false
		}
		p.Again = hearLimit
		return p.leave("its claim was just made")
	}},
	{"nothing left", func(w *World, p *Plan) bool {
		if w.made() {
			return false
		}
		p.Do = RemoveFinalizer
		return p.leave("it is let go")
	}},
	{"claim that stays", func(w *World, p *Plan) bool {
		if w.Cache.Spec.Reclaim() != v1alpha1.ReclaimRetain {
			return false
		}
		p.Do = ReleaseClaim
		return p.leave("its claim is let go")
	}},
	{"in use", func(w *World, p *Plan) bool {
		if len(w.Users) == 0 || !w.Claim.DeletionTimestamp.IsZero() {
			return false
		}
		p.Told.Blocked = fmt.Sprintf("PersistentVolumeClaim %s is mounted by %s: end them, or take the claim out of spec.modelCache.claims of the LauncherConfig whose launchers they are", w.claimName(), named(p.Told.Users))
		return p.leave("its claim is in use")
	}},
	{"claim to be deleted", func(w *World, p *Plan) bool {
		if w.Claim.DeletionTimestamp.IsZero() {
			p.Do = DeleteClaim
		}
		if len(w.Done) > 0 {
			p.Told.Blocked = fmt.Sprintf("PersistentVolumeClaim %s stays until the finished Pods that mounted it are gone: delete %s", w.claimName(), named(w.Done))
		}
		return p.leave("its claim is deleted")
	}},
}

func (p *Plan) leave(what string) bool {
	p.Told.Leaving, p.Told.Reason, p.Told.Why = what, v1alpha1.ReasonRemoving, what
	return true
}

// named lists the first names and counts the others.
func named(all []string) string {
	const some = 5
	if len(all) > some {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:some], ", "), len(all)-some)
	}
	return strings.Join(all, ", ")
}
