package nodeview

import (
	"context"
	"maps"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// Whole says that a model of a launcher is the one of that name, and is whole.
func Whole(m Model, name modelref.Name) bool {
	return m.State == launcherapi.ModelReady && name.In(modelref.Version{ID: m.ID, URI: m.URI, Revision: m.Revision, Refs: m.Refs, Lacks: len(m.Lacks) > 0})
}

// Has says that a launcher has the model of that name whole, as far as it says.
func (v View) Has(name modelref.Name) bool {
	for _, m := range v.Models {
		if Whole(m, name) {
			return true
		}
	}
	return false
}

// wholeOf are the names of the models that a launcher has whole, by their ids: what
// else may call a version does not change.
func wholeOf(models map[string]Model) map[string][]string {
	names := map[string][]string{}
	for id, m := range models {
		if m.State == launcherapi.ModelReady {
			names[id] = m.Refs
		}
	}
	return names
}

// followModels notes the models of the launcher whenever they change, until the
// stream breaks off.
func (l *launcher) followModels(ctx context.Context, c *client.Client, changed func(whole bool)) (reached bool, err error) {
	for models, err := range client.FollowModels(ctx, c, l.models.keep) {
		if err != nil {
			return reached, err
		}
		reached = true
		l.mu.Lock()
		whole := !maps.EqualFunc(wholeOf(l.view.Models), wholeOf(models), slices.Equal) || l.view.Models == nil
		l.view.Models, l.view.NoModels, l.view.ModelsAsked = models, "", true
		l.mu.Unlock()
		changed(whole)
	}
	return reached, ctx.Err()
}

// loseModels notes that the models are not known any more, and why.
func (l *launcher) loseModels(err error, changed func(whole bool)) {
	why := withoutPort(err)
	l.mu.Lock()
	known := l.view.Models != nil
	tell := known || l.view.NoModels != why
	if known {
		l.view.ModelsLost = time.Now()
	}
	l.view.Models, l.view.NoModels, l.view.ModelsAsked = nil, why, true
	l.mu.Unlock()
	if tell {
		changed(true)
	}
}
