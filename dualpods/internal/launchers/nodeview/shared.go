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

// Model is a model in a launcher's store. It has no paths, no rates, and no time but that
// of its publication.
type Model struct {
	// Model is nil only in the zero value. Launchers that report the same share one
	// object, which is immutable.
	*launcherapi.Model
	// Published is when the model came to this store, in Unix nanoseconds; 0: unknown.
	Published int64
}

// NewModel returns the part of a reported model that a View keeps.
func NewModel(m launcherapi.Model) Model {
	var published int64
	if m.Published != nil {
		published = m.Published.UnixNano()
	}
	m.Path, m.Published, m.LastUsed, m.PageCacheBytes = "", nil, nil, nil
	m.NetworkBytes, m.Rate, m.LeftMS = 0, 0, 0
	return Model{&m, published}
}

// pool holds the models that launchers report, and each only once: a thousand launchers
// have a hundred models each, most of them alike. Models that no View has are freed by
// the garbage collector.
type pool struct {
	mu   sync.Mutex
	held map[[sha256.Size]byte]weak.Pointer[launcherapi.Model] // by hash of the content
	ids  map[string]map[string]int                             // number of held models, by address and id
}

func newPool() *pool {
	return &pool{held: map[[sha256.Size]byte]weak.Pointer[launcherapi.Model]{}, ids: map[string]map[string]int{}}
}

// keep returns NewModel of a model, with the shared object of the pool.
func (p *pool) keep(said launcherapi.Model) Model {
	m := NewModel(said)
	text, err := json.Marshal(m.Model)
	if err != nil {
		return m // not shared; cannot happen for what was decoded from JSON
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
	runtime.AddCleanup(m.Model, func(key [sha256.Size]byte) { p.remove(key, address, id) }, key)
	return m
}

// remove removes a model that was freed.
func (p *pool) remove(key [sha256.Size]byte, address, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[key].Value() == nil { // else an equal model was added meanwhile
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

// candidateIDs returns the ids of the versions that a name may mean, whatever their revision:
// those with its address, or with that of a folder above it. It is sorted, and has the
// name itself, which may be an id.
func (p *pool) candidateIDs(name modelref.Name) []string {
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
