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
	{"released", func(w *World, _ *Plan) bool {
		return !controllerutil.ContainsFinalizer(w.Cache, podmeta.FinalizerModelCache)
	}},
	{"delete Job", func(w *World, p *Plan) bool {
		if w.Job == nil {
			return false
		}
		if w.Job.DeletionTimestamp.IsZero() {
			p.Do = DeleteJob
		}
		return p.leave("its Job is being deleted")
	}},
	{"claim just created", func(w *World, p *Plan) bool {
		if !w.Unheard {
			return false
		}
		p.Again = hearLimit
		return p.leave("its claim was just created")
	}},
	{"nothing left", func(w *World, p *Plan) bool {
		if w.made() {
			return false
		}
		p.Do = RemoveFinalizer
		return p.leave("its finalizer is being removed")
	}},
	{"retain claim", func(w *World, p *Plan) bool {
		if w.Cache.Spec.Reclaim() != v1alpha1.ReclaimRetain {
			return false
		}
		p.Do = ReleaseClaim
		return p.leave("its claim is being released (reclaimPolicy: Retain)")
	}},
	{"in use", func(w *World, p *Plan) bool {
		if len(w.Users) == 0 || !w.Claim.DeletionTimestamp.IsZero() {
			return false
		}
		p.Told.Blocked = fmt.Sprintf("PersistentVolumeClaim %s is mounted by %s: delete them, or remove the claim from spec.modelCache.claims of the LauncherConfig of these launchers", w.claimName(), named(p.Told.Users))
		return p.leave("its claim is in use")
	}},
	{"delete claim", func(w *World, p *Plan) bool {
		if w.Claim.DeletionTimestamp.IsZero() {
			p.Do = DeleteClaim
		}
		if len(w.Done) > 0 {
			p.Told.Blocked = fmt.Sprintf("PersistentVolumeClaim %s stays until the finished Pods that mounted it are gone: delete %s", w.claimName(), named(w.Done))
		}
		return p.leave("its claim is being deleted")
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
