package binding

import (
	"context"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Copy is what the launcher says of a model that its requester waits for.
type Copy struct {
	Whole  bool
	Silent time.Time // since when the launcher does not say what it has; zero: it does
	Why    string    // the launcher cannot have the model, or does not say; empty: it may have it
}

// fromWhere adds from where a new instance is to have its model, where the requester
// does not say: as its namespace says, or the controller's flag; where those leave it
// open, as the ClusterModelCache of the model does.
func (c *Controller) fromWhere(ctx context.Context, o *Observation, namespace string) {
	if o.Form.ModelCache != "" {
		return
	}
	var wrong []podmeta.Problem
	if c.opts.ModelCache != nil {
		o.ModelCache, wrong = c.opts.ModelCache(ctx, namespace)
	}
	open := o.ModelCache == "" || o.ModelCache == launcherapi.ModelCacheAuto
	if open && len(wrong) == 0 && c.opts.Keeper != nil {
		if o.Keeper, wrong = c.opts.Keeper(ctx, modelref.FromArgs(o.Form.Args), o.Node.Name); o.Keeper != nil {
			o.ModelCache = launcherapi.ModelCacheRequire
		}
	}
	if o.Record == nil { // one that is bound is served on
		o.Problems = wrong
	}
}

// copyFor is what a launcher says of the model that a requester waits for.
func (l *launcherPod) copyFor(o *Observation) Copy {
	if o.Keeper == nil || !o.Keeper.Waits {
		return Copy{}
	}
	return l.copyOf(modelref.FromArgs(o.Form.Args))
}

// copyOf is what it says of the model of that name.
func (l *launcherPod) copyOf(name modelref.Name) Copy {
	switch {
	case l.pod.Labels[podmeta.LabelModelNodeGroup] == "":
		return Copy{Why: "launcher " + l.pod.Name + " has no model store: name a ModelCacheNodeGroup of the cache in spec.modelCache of LauncherConfig " + l.config()}
	case l.view.Models == nil:
		return Copy{Silent: l.view.ModelsLost, Why: "launcher " + l.pod.Name + " does not say what models it has: " + l.view.WhyNoModels}
	default:
		return Copy{Whole: l.view.Has(name)}
	}
}

// lacksModel says that the requester waits for its model, and that nothing is there
// that would serve it without the launcher's copy.
func (o *Observation) lacksModel() bool {
	return o.Record == nil && o.Keeper != nil && o.Keeper.Waits && o.dead() && !o.Copy.Whole
}

// untilMissing is how long a launcher is still waited for that does not say what models
// it has; 0 and less: it says so, or has not for long.
func (o *Observation) untilMissing() time.Duration { return patience - o.Now.Sub(o.Copy.Silent) }

// missing says why a model is waited for.
func (o *Observation) missing() string {
	why := o.Copy.Why
	if why == "" {
		why = o.Keeper.Node
	}
	return why + "; ClusterModelCache " + o.Keeper.Name + " has who names the model wait (onMissing: Wait)"
}
