// Package watch follows Models, the Pods that serve them, the Pods of the front door, and the Secrets with clients'
// tokens. It keeps no copies of them.
package watch

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/access"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/directory"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Options of a Watch.
type Options struct {
	Config    *rest.Config
	Namespace string // whose Models and Pods are followed; empty: all
	Own       string // the namespace of the front door
	Directory *directory.Directory
	Peers     *demand.Pods
	Tokens    *access.Tokens
}

// Watch follows until the context of Run ends.
type Watch struct {
	reflectors []*cache.Reflector
	stores     []*store
}

// New returns a Watch.
func New(o Options) (*Watch, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("cannot read Pods: %w", err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("cannot read Models: %w", err)
	}
	client := func(of schema.GroupVersion, path string) (*rest.RESTClient, error) {
		config := rest.CopyConfig(o.Config)
		config.GroupVersion, config.APIPath = &of, path
		config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		api, err := rest.RESTClientFor(config)
		if err != nil {
			return nil, fmt.Errorf("cannot reach the API server: %w", err)
		}
		return api, nil
	}
	core, err := client(corev1.SchemeGroupVersion, "/api")
	if err != nil {
		return nil, err
	}
	models, err := client(v1alpha1.GroupVersion, "/apis")
	if err != nil {
		return nil, err
	}
	w := &Watch{}
	w.follow("Models", models, "models", o.Namespace, "", &v1alpha1.Model{}, func(of any) { o.Directory.SetModel(of.(*v1alpha1.Model)) }, o.Directory.DeleteModel)
	w.follow("Pods that serve", core, "pods", o.Namespace, podmeta.LabelServes, &corev1.Pod{}, func(of any) { o.Directory.SetPod(of.(*corev1.Pod)) }, o.Directory.DeletePod)
	w.follow("Pods of the front door", core, "pods", o.Own, podmeta.LabelComponent+"="+podmeta.ComponentFrontDoor, &corev1.Pod{}, func(of any) { o.Peers.Set(of.(*corev1.Pod)) }, o.Peers.Delete)
	w.follow("Secrets with tokens", core, "secrets", o.Own, podmeta.LabelFrontDoorToken+"=true", &corev1.Secret{}, func(of any) { o.Tokens.Set(of.(*corev1.Secret)) }, o.Tokens.Delete)
	return w, nil
}

// follow adds a kind of object that a selector selects.
func (w *Watch) follow(name string, api cache.Getter, resource, namespace, selector string, kind runtime.Object, set func(any), remove func(types.NamespacedName)) {
	s := &store{set: set, remove: remove, known: map[types.NamespacedName]bool{}, filled: make(chan struct{})}
	list := cache.NewFilteredListWatchFromClient(api, resource, namespace, func(o *metav1.ListOptions) { o.LabelSelector, o.FieldSelector = selector, fields.Everything().String() })
	w.stores = append(w.stores, s)
	w.reflectors = append(w.reflectors, cache.NewReflectorWithOptions(list, kind, s, cache.ReflectorOptions{Name: name}))
}

// Run follows until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, r := range w.reflectors {
		all.Go(func() { r.RunWithContext(ctx) })
	}
	all.Wait()
}

// Filled returns when everything was listed once; an error says that ctx has ended before.
func (w *Watch) Filled(ctx context.Context) error {
	for _, s := range w.stores {
		select {
		case <-s.filled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// store passes objects on.
type store struct {
	set    func(any)
	remove func(types.NamespacedName)
	filled chan struct{} // closed after the first list

	mu    sync.Mutex
	known map[types.NamespacedName]bool
}

func nameOf(of any) types.NamespacedName {
	if gone, ok := of.(cache.DeletedFinalStateUnknown); ok {
		of = gone.Obj
	}
	o, err := meta.Accessor(of)
	if err != nil {
		return types.NamespacedName{} // no object of ours
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Add notes an object.
func (s *store) Add(of any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[nameOf(of)] = true
	s.set(of)
	return nil
}

// Update notes an object that has changed.
func (s *store) Update(of any) error { return s.Add(of) }

// Delete forgets an object.
func (s *store) Delete(of any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, nameOf(of))
	s.remove(nameOf(of))
	return nil
}

// Replace notes all objects that there are.
func (s *store) Replace(all []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := map[types.NamespacedName]bool{}
	for _, of := range all {
		now[nameOf(of)] = true
		s.set(of)
	}
	for name := range s.known {
		if !now[name] {
			s.remove(name)
		}
	}
	s.known = now
	select {
	case <-s.filled:
	default:
		close(s.filled)
	}
	return nil
}

// Resync does nothing: nothing is kept.
func (*store) Resync() error { return nil }
