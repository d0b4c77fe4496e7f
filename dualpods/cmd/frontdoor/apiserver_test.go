package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// object is an object as the API server writes it.
type object = map[string]any

// fakeAPI lists objects, and tells of their changes.
type fakeAPI struct {
	url string

	mu       sync.Mutex
	version  int
	objects  map[string]map[types.NamespacedName]object // by the resource
	watchers map[chan<- object]watching
	ended    chan struct{}
}

// watching is what a client follows.
type watching struct {
	resource, namespace string
	selector            labels.Selector
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	a := &fakeAPI{version: 1, objects: map[string]map[types.NamespacedName]object{}, watchers: map[chan<- object]watching{}, ended: make(chan struct{})}
	server := httptest.NewServer(a)
	a.url = server.URL
	t.Cleanup(func() { close(a.ended); server.Close() })
	return a
}

func (w watching) selects(o object) bool {
	namespace, _, set := describe(o)
	return (w.namespace == "" || w.namespace == namespace) && w.selector.Matches(set)
}

func describe(o object) (namespace, name string, set labels.Set) {
	meta := o["metadata"].(object)
	set = labels.Set{}
	if of, ok := meta["labels"].(object); ok {
		for key, value := range of {
			set[key] = value.(string)
		}
	}
	return meta["namespace"].(string), meta["name"].(string), set
}

// set adds or changes an object; remove deletes one.
func (a *fakeAPI) set(resource string, o object) { a.change(resource, o, false) }

func (a *fakeAPI) remove(resource string, o object) { a.change(resource, o, true) }

func (a *fakeAPI) change(resource string, o object, remove bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	o["metadata"].(object)["resourceVersion"] = strconv.Itoa(a.version)
	namespace, name, _ := describe(o)
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if a.objects[resource] == nil {
		a.objects[resource] = map[types.NamespacedName]object{}
	}
	before := a.objects[resource][key]
	if remove {
		delete(a.objects[resource], key)
	} else {
		a.objects[resource][key] = o
	}
	for to, w := range a.watchers {
		if w.resource != resource {
			continue
		}
		was, is := before != nil && w.selects(before), !remove && w.selects(o)
		switch {
		case is && was:
			to <- object{"type": "MODIFIED", "object": o}
		case is:
			to <- object{"type": "ADDED", "object": o}
		case was: // a label has gone, or the object
			to <- object{"type": "DELETED", "object": o}
		}
	}
}

func (a *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	selector, err := labels.Parse(q.Get("labelSelector"))
	if err != nil || q.Get("sendInitialEvents") != "" {
		http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`, http.StatusUnprocessableEntity)
		return
	}
	of := watching{selector: selector}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	of.resource = parts[len(parts)-1]
	if len(parts) > 2 && parts[len(parts)-3] == "namespaces" {
		of.namespace = parts[len(parts)-2]
	}
	w.Header().Set("Content-Type", "application/json")
	if q.Get("watch") == "" {
		a.list(w, of)
		return
	}
	a.watch(w, r, of)
}

func (a *fakeAPI) list(w http.ResponseWriter, of watching) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind := map[string]string{"models": "Model", "pods": "Pod", "secrets": "Secret"}[of.resource]
	version := map[string]string{"models": "hotseat.dev/v1alpha1"}[of.resource]
	if version == "" {
		version = "v1"
	}
	items := []object{}
	for _, o := range a.objects[of.resource] {
		if of.selects(o) {
			items = append(items, o)
		}
	}
	_ = json.NewEncoder(w).Encode(object{"kind": kind + "List", "apiVersion": version, "metadata": object{"resourceVersion": strconv.Itoa(a.version)}, "items": items})
}

func (a *fakeAPI) watch(w http.ResponseWriter, r *http.Request, of watching) {
	events := make(chan object, 10_000)
	a.mu.Lock()
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	for _, o := range a.objects[of.resource] { // what has changed between the list and the watch
		at, _ := strconv.Atoi(o["metadata"].(object)["resourceVersion"].(string))
		if at > since && of.selects(o) {
			events <- object{"type": "ADDED", "object": o}
		}
	}
	a.watchers[events] = of
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.watchers, events)
	}()
	out, flush := json.NewEncoder(w), http.NewResponseController(w)
	for {
		if flush.Flush() != nil {
			return
		}
		select {
		case e := <-events:
			a.mu.Lock()
			err := out.Encode(e)
			a.mu.Unlock()
			if err != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-a.ended:
			return
		}
	}
}
