package frontdoor

import (
	"net/http"
	"slices"

	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// listed is a model in the list of the OpenAI API, with what the front door knows beside.
type listed struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	// State is that of its instance; stopped: it has none. A selector has none.
	State string `json:"state,omitempty"`
	// Models are those that a selector chooses from.
	Models []string `json:"models,omitempty"`
	card

	bytes uint64 // of device memory
}

// names lists everything that clients may ask for: models of the catalogue by all their names,
// selectors, and the instances that somebody has made.
func (f *FrontDoor) names() []listed {
	offers := f.fleet.offers.Load()
	all, _ := f.opts.Instances.List()
	models := []listed{}
	for _, o := range offers.models {
		m := listed{Object: "model", OwnedBy: owner, State: "stopped"}
		if n := slices.IndexFunc(all, func(i launcherapi.Instance) bool { return offers.nameOf(&i) == o.Name }); n >= 0 {
			m.State, m.Created, m.card, m.bytes = all[n].State, all[n].CreatedAt.Unix(), f.cards.of(&all[n]), deviceBytes(&all[n])
		}
		for _, name := range o.Names() {
			m.ID = name
			models = append(models, m)
		}
	}
	for _, s := range offers.catalogue.Selectors {
		models = append(models, listed{ID: s.Name, Object: "model", OwnedBy: owner, Models: s.Models})
	}
	for _, i := range all {
		for _, name := range i.ServedModelNames {
			if i.Annotations[launcherapi.AnnotationModel] == "" && !slices.ContainsFunc(models, func(m listed) bool { return m.ID == name }) {
				models = append(models, listed{ID: name, Object: "model", Created: i.CreatedAt.Unix(), OwnedBy: owner, State: i.State, card: f.cards.of(&i), bytes: deviceBytes(&i)})
			}
		}
	}
	return models
}

// deviceBytes returns how much device memory an instance has, where that is measured.
func deviceBytes(i *launcherapi.Instance) (sum uint64) {
	for _, bytes := range i.GPUBytes {
		sum += bytes
	}
	return sum
}

const owner = "hotseat"

// showModel answers one model of the list.
func (f *FrontDoor) showModel(w http.ResponseWriter, r *http.Request, name string) {
	all := f.names()
	n := slices.IndexFunc(all, func(m listed) bool { return m.ID == name })
	if n < 0 {
		_, err := f.resolve(name)
		inference.WriteError(w, r, inference.ModelNotFound(err))
		return
	}
	writeJSON(w, all[n])
}

// listModels answers the list of models as the OpenAI API does.
func (f *FrontDoor) listModels(w http.ResponseWriter) {
	writeJSON(w, map[string]any{"object": "list", "data": f.names()})
}
