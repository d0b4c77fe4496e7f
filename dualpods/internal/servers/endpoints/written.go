package endpoints

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
)

// written is what this process knows of the slices of a Service that the cache may not have
// yet. A pass begins once the cache has it, so that each pass rests on the last one's writes.
type written struct {
	live     bool                 // the slices were read from the API server, and each write was answered
	versions map[types.UID]string // resource versions that the cache is to have, or later ones; empty: the slice is gone
	since    time.Time            // when the last of these was noted
}

// cachePatience is how long a pass waits for the cache. After that, slices are read from the
// API server again.
const cachePatience = time.Second

// slicesOf returns our slices of a Service. current is false where the cache is behind. What
// this process has not read yet, or has written without an answer, it reads from the API
// server: a cache may lack what an earlier process wrote.
func (c *Controller) slicesOf(ctx context.Context, service client.ObjectKey) (all []*discoveryv1.EndpointSlice, current bool, err error) {
	w := c.knows(service)
	cached, err := list(ctx, c.opts.API, service)
	switch {
	case err != nil:
		return nil, false, err
	case w.live && w.isIn(cached):
		return cached, true, nil
	case w.live && c.opts.Now().Sub(w.since) < cachePatience:
		return nil, false, nil
	}
	if all, err = list(ctx, c.opts.Live, service); err != nil {
		return nil, false, err
	}
	*w = written{live: true}
	for _, s := range cached {
		w.removed(s, c.opts.Now())
	}
	for _, s := range all {
		w.wrote(s, c.opts.Now())
	}
	return all, true, nil
}

// knows returns what is known of the slices of a Service. One pass of the Service has it at a
// time.
func (c *Controller) knows(service client.ObjectKey) *written {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.written[service]
	if w == nil {
		w = &written{}
		c.written[service] = w
	}
	return w
}

// forgetService forgets what is known of a Service that has no slices and wants none.
func (c *Controller) forgetService(service client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.written, service)
}

// wrote notes a slice as the API server has it.
func (w *written) wrote(s *discoveryv1.EndpointSlice, now time.Time) {
	w.expect(s.UID, s.ResourceVersion, now)
}

// removed notes that the API server does not have a slice any more.
func (w *written) removed(s *discoveryv1.EndpointSlice, now time.Time) { w.expect(s.UID, "", now) }

func (w *written) expect(slice types.UID, version string, now time.Time) {
	if w.versions == nil {
		w.versions = map[types.UID]string{}
	}
	w.versions[slice], w.since = version, now
}

// isIn reports whether the cache has what was noted, and then forgets it.
func (w *written) isIn(cached []*discoveryv1.EndpointSlice) bool {
	there := map[types.UID]string{}
	for _, s := range cached {
		there[s.UID] = s.ResourceVersion
	}
	for slice, version := range w.versions {
		has, ok := there[slice]
		if version == "" && ok || version != "" && (!ok || older(has, version)) {
			return false
		}
	}
	w.versions = nil
	return true
}

// older compares resource versions of slices.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// list lists our slices of a Service.
func list(ctx context.Context, from client.Reader, service client.ObjectKey) (all []*discoveryv1.EndpointSlice, err error) {
	var found discoveryv1.EndpointSliceList
	of := client.MatchingLabels{discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: podmeta.ManagedByEndpoints}
	if err := from.List(ctx, &found, client.InNamespace(service.Namespace), of); err != nil {
		return nil, fmt.Errorf("cannot list the EndpointSlices of Service %s: %w", service, err)
	}
	for i := range found.Items {
		if ours(&found.Items[i]) {
			all = append(all, &found.Items[i])
		}
	}
	return all, nil
}

// writeTimeout bounds a write.
const writeTimeout = 5 * time.Second

// write makes the writes of a plan, one after the other: changes, which may take somebody out,
// then new slices, then those that are not needed any more. Where one fails, the next pass
// reads the slices from the API server.
func (c *Controller) write(ctx context.Context, service client.ObjectKey, p plan, before []*discoveryv1.EndpointSlice) error {
	if len(p.update)+len(p.create)+len(p.remove) == 0 {
		return nil
	}
	after := map[types.UID]*discoveryv1.EndpointSlice{}
	for _, s := range before {
		after[s.UID] = s
	}
	w := c.knows(service)
	w.live = false
	c.book.mayLead(service, leadsTo(slices.Concat(p.update, p.create)))
	ctx, stop := context.WithTimeout(ctx, writeTimeout)
	defer stop()
	for _, s := range p.update {
		if err := c.opts.API.Update(ctx, s); err != nil {
			return fmt.Errorf("cannot change EndpointSlice %s/%s: %w", s.Namespace, s.Name, err)
		}
		w.wrote(s, c.opts.Now())
		after[s.UID] = s
	}
	for _, s := range p.create {
		if err := c.opts.API.Create(ctx, s); err != nil {
			return fmt.Errorf("cannot make an EndpointSlice of Service %s: %w", service, err)
		}
		w.wrote(s, c.opts.Now())
		after[s.UID] = s
	}
	for _, s := range p.remove {
		if err := client.IgnoreNotFound(c.opts.API.Delete(ctx, s, client.Preconditions{UID: &s.UID})); err != nil {
			return fmt.Errorf("cannot delete EndpointSlice %s/%s: %w", s.Namespace, s.Name, err)
		}
		w.removed(s, c.opts.Now())
		delete(after, s.UID)
	}
	w.live = true
	c.left(c.book.doLead(service, leadsTo(slices.Collect(maps.Values(after))), false, c.opts.Now()))
	return nil
}
