package nodeview

import (
	"context"
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

// sameWhole says that a launcher has the same models whole, by the same names, as before:
// what else may call a version does not change.
func sameWhole(before, now map[string]Model) bool {
	for id, m := range now {
		was, known := before[id]
		if known && was.Model == m.Model { // what is said alike is held once
			continue
		}
		ready := m.State == launcherapi.ModelReady
		if wasReady := known && was.State == launcherapi.ModelReady; ready != wasReady || ready && !slices.Equal(was.Refs, m.Refs) {
			return false
		}
	}
	for id, was := range before {
		if _, still := now[id]; !still && was.State == launcherapi.ModelReady {
			return false
		}
	}
	return true
}

// followModels notes the models of the launcher whenever they change, until the
// stream breaks off.
func (l *launcher) followModels(ctx context.Context) (reached bool, err error) {
	for models, err := range client.FollowModels(ctx, l.client, l.models.keep) {
		if err != nil {
			return reached, err
		}
		reached = true
		l.mu.Lock()
		whole := l.view.Models == nil || !sameWhole(l.view.Models, models)
		l.view.Models, l.view.NoModels, l.view.ModelsAsked = models, "", true
		l.mu.Unlock()
		l.opts.ModelsChanged(l.key, whole)
	}
	return reached, ctx.Err()
}

// loseModels notes that the models are not known any more, and why.
func (l *launcher) loseModels(err error, _ bool) {
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
		l.opts.ModelsChanged(l.key, true)
	}
}
