package door

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/access"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/directory"
	"hotseat.dev/hotseat/launcher/inference"
)

const modelsPath = "/v1/models"

// card describes a name by which clients may ask for a Model.
type card struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	Parent  string `json:"parent,omitempty"` // the Model, if the name is another one
	State   string `json:"state"`
}

func (d *Door) card(m *directory.Model, name string) card {
	c := card{ID: name, Object: "model", Created: m.Created.Unix(), OwnedBy: cmp.Or(m.Owner, "hotseat"), State: d.stateOf(m)}
	if name != m.Key.Name {
		c.Parent = m.Key.Name
	}
	return c
}

// showModels answers with the Models of a namespace that the client may ask, or with one of them.
func (d *Door) showModels(w http.ResponseWriter, r *http.Request, grant access.Grant) error {
	selector, err := among(r)
	if err != nil {
		return err
	}
	namespace := d.opts.Namespace(r.Host)
	may := func(m *directory.Model) bool { return selector.Matches(m.Labels) && grant.Allows(m.Key) }
	if name, ok := strings.CutPrefix(r.URL.Path, modelsPath+"/"); ok {
		m, _, err := d.dir.Find(namespace, name, may)
		if err != nil {
			return inference.ModelNotFound(err)
		}
		writeJSON(w, d.card(m, name))
		return nil
	}
	list := struct {
		Object string `json:"object"`
		Data   []card `json:"data"`
	}{"list", []card{}}
	listed := map[string]bool{}
	for _, m := range d.dir.List(namespace, may) {
		for _, name := range m.Names {
			// Several Models may have a name: it is listed for the one that answers by it.
			if answers, _, err := d.dir.Find(namespace, name, may); err == nil && answers == m && !listed[name] {
				listed[name] = true
				list.Data = append(list.Data, d.card(m, name))
			}
		}
	}
	writeJSON(w, list)
	return nil
}

func writeJSON(w http.ResponseWriter, what any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(what) // an error is the client's
}

// The states of Models in the list.
const (
	stateReady   = "ready"
	stateWaiting = "waiting" // requests wait for it
	stateIdle    = "idle"    // nothing serves it, and nothing asks for it
)

func (d *Door) stateOf(m *directory.Model) string {
	switch {
	case len(d.dir.Serving(m.Key)) > 0:
		return stateReady
	case d.load(m).Held > 0:
		return stateWaiting
	}
	return stateIdle
}
