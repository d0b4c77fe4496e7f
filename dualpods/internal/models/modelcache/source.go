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

// wanted returns the pull request for a cache. It names a retention only when that is LRU
// or was recorded as LRU by some launcher: launchers of earlier releases refuse the field.
func (d *decision) wanted(c *v1alpha1.ClusterModelCache, holder, revision string) PullRequest {
	w := pullAddress(c, revision)
	w.Include, w.Exclude = c.Spec.Source.Include, c.Spec.Source.Exclude
	noted := func(s *storeView) bool { return slices.Contains(s.modelFor(holder).LRUBy, holder) }
	switch {
	case c.Spec.Retention == v1alpha1.RetentionLRU:
		w.Retention = launcherapi.RetentionLRU
	case slices.ContainsFunc(slices.Collect(maps.Values(d.stores)), noted):
		w.Retention = launcherapi.RetentionKeep
	}
	return w
}

// pullAddress returns the pull request for a source. For a model of the hub it names one
// commit, together with the cache's name for it, so that all nodes get the same version.
func pullAddress(c *v1alpha1.ClusterModelCache, revision string) PullRequest {
	source := c.Spec.Source
	switch {
	case !strings.HasPrefix(source.URI, modelref.HubScheme):
		return PullRequest{URI: source.URI}
	case revision != "":
		return PullRequest{URI: source.URI + "@" + revision, Ref: cmp.Or(source.Revision, modelref.MainBranch)}
	case source.Revision != "":
		return PullRequest{URI: source.URI + "@" + source.Revision}
	default:
		return PullRequest{URI: source.URI}
	}
}

// VersionOf returns the version of a source at a revision, for comparison with names.
func VersionOf(source v1alpha1.ModelSource, revision string) modelref.Version {
	v := modelref.Version{URI: source.URI, Revision: revision}
	if strings.HasPrefix(v.URI, modelref.HubScheme) {
		v.Refs = []string{cmp.Or(source.Revision, modelref.MainBranch)}
	}
	return v
}

// Older compares caches by age: the oldest cache of a model counts.
func Older(a, b *v1alpha1.ClusterModelCache) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// Of returns the cache that counts for a model of that name: the oldest one that is not
// being deleted; nil: there is none.
func Of(all []v1alpha1.ClusterModelCache, name modelref.Name) (oldest *v1alpha1.ClusterModelCache) {
	for i := range all {
		if c := &all[i]; c.DeletionTimestamp.IsZero() && name.In(VersionOf(c.Spec.Source, c.Status.Revision)) && (oldest == nil || Older(c, oldest) < 0) {
			oldest = c
		}
	}
	return oldest
}

// isNamed reports whether the controller can ask launchers for a version of the source.
func isNamed(c *v1alpha1.ClusterModelCache) bool {
	return strings.HasPrefix(c.Spec.Source.URI, modelref.HubScheme)
}

// mayResolve returns which stores may ask the source for the version. For a model of the hub
// only one store asks at a time, with a back-off after failures. A store without room does
// not count as a failure: the next one asks at once. Once the version is known, all may ask.
func (d *decision) mayResolve(c *v1alpha1.ClusterModelCache, holder string, report *Report, where map[store]string) func(store) bool {
	if report.Revision != "" || !isNamed(c) {
		return func(store) bool { return true }
	}
	none := func(store) bool { return false }
	last, full, asks := resolveFailures(d.pulls[holder])
	if last.Err != "" {
		report.Source, report.Cause = report.describeFailure(last.Err, last.Cause), last.Cause
	}
	if asks || last.Err != "" && d.waitUntil(last.retryAt()) {
		return none
	}
	first := d.nextToAsk(holder, report, where)
	if first == nil && full.Err != "" { // no store has room
		report.Source, report.Cause = report.describeFailure(full.Err, full.Cause), full.Cause
	}
	return func(at store) bool { return first != nil && at == *first }
}

// resolveFailures summarises the calls that did not resolve a version. last is the last failure,
// with the tries of all launchers. full is the last failure for want of room, which does not count
// in last. asks reports whether a call runs.
func resolveFailures(pulls map[string]Answer) (last, full Answer, asks bool) {
	tries := 0
	for _, a := range pulls {
		of := &last
		if a.Cause == fetchapi.ReasonCapacityExceeded {
			of = &full
		} else {
			tries += a.Tries
		}
		if a.Err != "" && a.AnsweredAt.After(of.AnsweredAt) {
			*of = a
		}
		asks = asks || a.Running
	}
	last.Tries = tries
	return last, full, asks
}

// nextToAsk returns the store that asks next; nil: none. It is the store that asked longest ago
// and did not just fail for want of room.
func (d *decision) nextToAsk(holder string, report *Report, where map[store]string) (first *store) {
	var since time.Time
	for _, at := range d.places {
		s := d.stores[at]
		if _, here := where[at]; !here || s == nil || s.Models == nil {
			continue
		}
		if s = report.Credentials.called(s); report.Credentials.whyNot(s.Launcher) != "" {
			continue
		}
		answer := d.pulls[holder][s.UID]
		if answer.Cause == fetchapi.ReasonCapacityExceeded && d.waitUntil(answer.retryAt()) {
			continue
		}
		if first == nil || answer.AnsweredAt.Before(since) {
			first, since = &at, answer.AnsweredAt
		}
	}
	return first
}
