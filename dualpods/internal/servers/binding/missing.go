package binding

import (
	"context"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
)

// fromWhere adds from where a new instance is to have its model, where the requester
// does not say: as its namespace says, or the controller's flag; where those leave it
// open, as the ClusterModelCache of the model does.
func (c *Controller) fromWhere(ctx context.Context, o *decide.Observation, namespace string) {
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
func (l *launcherPod) copyFor(o *decide.Observation) decide.Copy {
	if o.Keeper == nil || !o.Keeper.Waits {
		return decide.Copy{}
	}
	return l.copyOf(modelref.FromArgs(o.Form.Args))
}

// copyOf is what it says of the model of that name.
func (l *launcherPod) copyOf(name modelref.Name) decide.Copy {
	switch {
	case l.pod.Labels[podmeta.LabelModelNodeGroup] == "":
		return decide.Copy{Why: "launcher " + l.pod.Name + " has no model store: name a ModelCacheNodeGroup of the cache in spec.modelCache of LauncherConfig " + l.config()}
	case l.view.Models == nil:
		return decide.Copy{Silent: l.view.ModelsLost, Why: "launcher " + l.pod.Name + " does not say what models it has: " + l.view.WhyNoModels}
	default:
		return decide.Copy{Whole: l.view.Has(name)}
	}
}
