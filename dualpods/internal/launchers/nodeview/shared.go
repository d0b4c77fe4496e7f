package nodeview

import (
	"crypto/sha256"
	"encoding/json"
	"runtime"
	"slices"
	"sync"
	"weak"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// Model is one of a launcher's model store, without paths on the node, without times but
// that of its publication, and without rates.
type Model struct {
	// Model is nil in the zero Model alone. It is held once for all launchers that say the
	// same, and never changed.
	*launcherapi.Model
	// Published is when it came to this store, in nanoseconds since 1970; 0: not said.
	Published int64
}

// Kept is what is kept of a model.
func Kept(m launcherapi.Model) Model {
	var published int64
	if m.Published != nil {
		published = m.Published.UnixNano()
	}
	m.Path, m.HubCache, m.Published, m.LastUsed, m.PageCacheBytes = "", "", nil, nil, nil
	m.NetworkBytes, m.Rate, m.LeftMS = 0, 0, 0
	return Model{&m, published}
}

// pool holds what launchers say of models, once where several say the same: a thousand
// launchers have a hundred models each, most of them alike. What no launcher says any
// more leaves it with a collection of garbage.
type pool struct {
	mu   sync.Mutex
	held map[[sha256.Size]byte]weak.Pointer[launcherapi.Model] // by content
	ids  map[string]map[string]int                             // what is held, counted: by address, by id
}

func newPool() *pool {
	return &pool{held: map[[sha256.Size]byte]weak.Pointer[launcherapi.Model]{}, ids: map[string]map[string]int{}}
}

// keep is Kept with the model that the pool holds.
func (p *pool) keep(said launcherapi.Model) Model {
	m := Kept(said)
	text, err := json.Marshal(m.Model)
	if err != nil {
		return m // held alone; what has come as JSON can be written so
	}
	key := sha256.Sum256(text)
	p.mu.Lock()
	defer p.mu.Unlock()
	if there := p.held[key].Value(); there != nil {
		return Model{there, m.Published}
	}
	p.held[key] = weak.Make(m.Model)
	address, id := modelref.Address(m.URI), m.ID
	if p.ids[address] == nil {
		p.ids[address] = map[string]int{}
	}
	p.ids[address][id]++
	runtime.AddCleanup(m.Model, func(key [sha256.Size]byte) { p.leave(key, address, id) }, key)
	return m
}

// leave notes that nobody has a model any more.
func (p *pool) leave(key [sha256.Size]byte, address, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[key].Value() == nil { // else another has come that says the same
		delete(p.held, key)
	}
	of := p.ids[address]
	if of[id]--; of[id] == 0 {
		delete(of, id)
	}
	if len(of) == 0 {
		delete(p.ids, address)
	}
}

// called are the ids of versions whose address, or the address of a folder around which,
// the name calls, by whatever revision; sorted, with the name itself, which may be an id.
func (p *pool) called(name modelref.Name) []string {
	names := []modelref.Name{name}
	for _, above := range name.Above() {
		names = append(names, above.Name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := []string{name.Model}
	for _, n := range names {
		for _, address := range n.Addresses() {
			for id := range p.ids[address] {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
