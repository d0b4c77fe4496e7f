package apitest

import (
	"context"
	"slices"
	"sync"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Models is a model store that has at once what is asked for; the id of a model is
// its address.
type Models struct {
	mu      sync.Mutex
	all     []launcherapi.Model
	changed chan struct{}
}

// NewModels makes a store without models.
func NewModels() *Models { return &Models{changed: make(chan struct{})} }

// List shows every model.
func (f *Models) List() (launcherapi.ModelList, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return launcherapi.ModelList{Store: "/models", TotalModels: len(f.all), Models: append([]launcherapi.Model{}, f.all...)}, nil
}

func (f *Models) find(id string) (int, error) {
	n := slices.IndexFunc(f.all, func(m launcherapi.Model) bool { return m.ID == id })
	if n < 0 {
		return n, launcher.NotFound(id)
	}
	return n, nil
}

// Get shows a model.
func (f *Models) Get(id string) (launcherapi.Model, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(id)
	if err != nil {
		return launcherapi.Model{}, err
	}
	return f.all[n], nil
}

// Pull has a model there.
func (f *Models) Pull(_ context.Context, r launcherapi.ModelRequest) (launcherapi.Model, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n, err := f.find(r.URI); err == nil {
		return f.all[n], nil
	}
	m := launcherapi.Model{ID: r.URI, URI: r.URI, State: launcherapi.ModelReady}
	f.all = append(f.all, m)
	f.change()
	return m, nil
}

// Remove removes a model.
func (f *Models) Remove(_ context.Context, id, _ string) (launcherapi.Model, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(id)
	if err != nil {
		return launcherapi.Model{}, err
	}
	m := f.all[n]
	f.all = slices.Delete(f.all, n, n+1)
	f.change()
	return m, nil
}

// Warm says that all of a model was read.
func (f *Models) Warm(_ context.Context, id string) (launcherapi.WarmedModel, error) {
	m, err := f.Get(id)
	return launcherapi.WarmedModel{ID: id, Bytes: m.Bytes, FreshBytes: m.Bytes}, err
}

func (f *Models) change() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// Changed gives a channel that is closed at the next change.
func (f *Models) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}
