package nodeview

import (
	"context"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// Whole reports whether a model of a launcher is whole and is the one that the name means.
func Whole(m Model, name modelref.Name) bool {
	return m.State == launcherapi.ModelReady && name.In(modelref.Version{ID: m.ID, URI: m.URI, Revision: m.Revision, Refs: m.Refs, Lacks: len(m.Lacks) > 0})
}

// Has reports whether the launcher reports the model of that name as whole.
func (v View) Has(name modelref.Name) bool {
	for _, m := range v.Models {
		if Whole(m, name) {
			return true
		}
	}
	return false
}

// sameWhole reports whether the launcher still has the same models whole, by the same
// names. The other fields that a name can match never change.
func sameWhole(before, now map[string]Model) bool {
	for id, m := range now {
		was, known := before[id]
		if known && was.Model == m.Model { // equal models are one object
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

// followModels records each change of the launcher's models until the stream breaks.
// reached reports whether the stream delivered any.
func (l *launcher) followModels(ctx context.Context) (reached bool, err error) {
	for models, err := range client.FollowModels(ctx, l.client, l.models.keep) {
		if err != nil {
			return reached, err
		}
		reached = true
		l.mu.Lock()
		whole := l.view.Models == nil || !sameWhole(l.view.Models, models)
		l.view.Models, l.view.WhyNoModels, l.view.ModelsAsked = models, "", true
		l.mu.Unlock()
		l.opts.ModelsChanged(l.key, whole)
	}
	return reached, ctx.Err()
}

// markModelsLost records that the launcher's models are unknown, and why.
func (l *launcher) markModelsLost(err error, _ bool) {
	why := withoutPort(err)
	l.mu.Lock()
	known := l.view.Models != nil
	changed := known || l.view.WhyNoModels != why
	if known {
		l.view.ModelsLost = time.Now()
	}
	l.view.Models, l.view.WhyNoModels, l.view.ModelsAsked = nil, why, true
	l.mu.Unlock()
	if changed {
		l.opts.ModelsChanged(l.key, true)
	}
}
