package modelcache

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// wanted is what launchers are asked for. A launcher of before there was a retention
// refuses one: that a copy stays is said where another launcher has noted that it goes.
func (d *decision) wanted(c *v1alpha1.ClusterModelCache, holder, revision string) Wanted {
	w := address(c, revision)
	w.Include, w.Exclude = c.Spec.Source.Include, c.Spec.Source.Exclude
	noted := func(s *speaker) bool { return slices.Contains(s.held(holder).LRUBy, holder) }
	switch {
	case c.Spec.Retention == v1alpha1.RetentionLRU:
		w.Retention = launcherapi.RetentionLRU
	case slices.ContainsFunc(slices.Collect(maps.Values(d.stores)), noted):
		w.Retention = launcherapi.RetentionKeep
	}
	return w
}

// address is what launchers are asked for of a source. Of a model of the hub it is one
// commit, by the name that the cache has for it, so that all nodes have the same.
func address(c *v1alpha1.ClusterModelCache, revision string) Wanted {
	source := c.Spec.Source
	switch {
	case !strings.HasPrefix(source.URI, modelref.HubScheme):
		return Wanted{URI: source.URI}
	case revision != "":
		return Wanted{URI: source.URI + "@" + revision, Ref: cmp.Or(source.Revision, modelref.MainBranch)}
	case source.Revision != "":
		return Wanted{URI: source.URI + "@" + source.Revision}
	default:
		return Wanted{URI: source.URI}
	}
}

// VersionOf is the model of a source, at a revision, as names may call it.
func VersionOf(source v1alpha1.ModelSource, revision string) modelref.Version {
	v := modelref.Version{URI: source.URI, Revision: revision}
	if strings.HasPrefix(v.URI, modelref.HubScheme) {
		v.Refs = []string{cmp.Or(source.Revision, modelref.MainBranch)}
	}
	return v
}

// Older compares caches by their age: of several of one model the oldest counts.
func Older(a, b *v1alpha1.ClusterModelCache) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// Of is the cache that counts for a model of that name: the oldest of its caches that
// is not being deleted; nil: there is none.
func Of(all []v1alpha1.ClusterModelCache, name modelref.Name) (oldest *v1alpha1.ClusterModelCache) {
	for i := range all {
		if c := &all[i]; c.DeletionTimestamp.IsZero() && name.In(VersionOf(c.Spec.Source, c.Status.Revision)) && (oldest == nil || Older(c, oldest) < 0) {
			oldest = c
		}
	}
	return oldest
}

// resolves says which store asks which version a model of the hub is, for all: one at
// a time, and after a pause when that could not be told; where only the room was lacking
// the next one asks. All may ask where that is known.
func (d *decision) resolves(c *v1alpha1.ClusterModelCache, holder string, told *Told, where map[store]string) func(store) bool {
	if told.Revision != "" || !strings.HasPrefix(c.Spec.Source.URI, modelref.HubScheme) {
		return func(store) bool { return true }
	}
	nobody := func(store) bool { return false }
	last, full, asks := unresolved(d.pulls[holder])
	if last.Err != "" {
		told.Source, told.Cause = told.failed(last.Err, last.Cause), last.Cause
	}
	if asks || last.Err != "" && d.later(last.again()) {
		return nobody
	}
	first := d.asksNext(holder, told, where)
	if first == nil && full.Err != "" { // there is room nowhere
		told.Source, told.Cause = told.failed(full.Err, full.Cause), full.Cause
	}
	return func(at store) bool { return first != nil && at == *first }
}

// unresolved says how it stands with the question for the version of a source: the last
// answer that none could be told, with the tries of all launchers; the last of one that
// had no room; and whether one asks.
func unresolved(pulls map[string]Answer) (last, full Answer, asks bool) {
	tries := 0
	for _, a := range pulls {
		of := &last
		if a.Cause == fetchapi.ReasonCapacityExceeded {
			of = &full
		} else {
			tries += a.Tries
		}
		if a.Err != "" && a.At.After(of.At) {
			*of = a
		}
		asks = asks || a.Running
	}
	last.Tries = tries
	return last, full, asks
}

// asksNext is the store that asks next: the one that was asked longest ago, and that was
// not found a moment ago to have no room; nil: there is none.
func (d *decision) asksNext(holder string, told *Told, where map[store]string) (first *store) {
	var since time.Time
	for _, at := range d.places {
		s := d.stores[at]
		if _, here := where[at]; !here || s == nil || s.Models == nil || told.Credentials.cannot(s.Launcher) != "" {
			continue
		}
		answer := d.pulls[holder][s.UID]
		if answer.Cause == fetchapi.ReasonCapacityExceeded && d.later(answer.again()) {
			continue
		}
		if first == nil || answer.At.Before(since) {
			first, since = &at, answer.At
		}
	}
	return first
}
