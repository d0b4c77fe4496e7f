package simulation

import (
	"errors"
	"strings"
	"time"

	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	program "hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// callCheck looks at what controllers ask of launchers.
type callCheck struct {
	w     *world
	runs  map[*process]int            // calls
	asked map[asking]asked            // to fetch, and not answered yet
	tries map[asking]*tries           // that have failed, one after the other
	last  map[asking]fetchCredentials // that were shown
}

type asking struct {
	l      *launcher
	holder string
}

type asked struct {
	by    *process
	since time.Time
	uri   string
}

type tries struct {
	by *process
	n  int
	at time.Time // of the last
	// full: that was for want of room.
	full bool
}

type fetchCredentials string

func newCallCheck(w *world) *callCheck {
	return &callCheck{w: w, runs: map[*process]int{}, asked: map[asking]asked{}, tries: map[asking]*tries{}, last: map[asking]fetchCredentials{}}
}

const mostCalls = 64

func (c *callCheck) begin(p *process) {
	if c.runs[p]++; c.runs[p] > mostCalls {
		c.w.violated("too many calls", "%d run at once", c.runs[p])
	}
}

// cacheOf is the cache of a holder; nil: it is gone.
func (w *world) cacheOf(holder string) *v1alpha1.ClusterModelCache {
	for _, o := range w.api.objects[caches] {
		if cache := o.(*v1alpha1.ClusterModelCache); modelcache.Holder(cache) == holder {
			return cache
		}
	}
	return nil
}

// uidOf is that of the cache that a holder is.
func uidOf(holder string) string { return holder[strings.LastIndex(holder, "/")+1:] }

// pull looks at a call to fetch.
func (c *callCheck) pull(p *process, l *launcher, r launcherapi.ModelRequest) {
	w, holder := c.w, r.WantedBy
	if p.dead {
		return
	}
	w.note("%s is asked to fetch %s for %s", l.name, r.URI, holder)
	c.begin(p)
	of := asking{l, holder}
	c.sources(p, of, r.URI)
	defer func() { c.asked[of] = asked{p, time.Now(), r.URI} }()
	shown := fetchCredentials(r.Credentials["HF_TOKEN"])
	if c.last[of] != shown { // what has failed is tried again at once
		delete(c.tries, of)
	}
	c.last[of] = shown
	if cache := w.cacheOf(holder); shown != "" && l.plain {
		w.violated("credentials without TLS", "%s is told some", l.name)
	} else if cache != nil && cache.Spec.Credentials != nil && shown == "" {
		w.violated("asked without credentials", "%s for %s", l.name, holder)
	}
	uid, at := uidOf(holder), store{l.disk.node, l.disk.path}
	if w.truth.steady(fact{"cache", uid, "", ""}, "") || w.truth.steady(fact{"cache", uid, "", ""}, deleting) {
		w.violated("fetched for nobody", "%s, which is gone or being deleted", holder)
	}
	if cache := w.cacheOf(holder); cache != nil && len(cache.Finalizers) == 0 {
		w.violated("fetched before anybody would clean up", "%s has no finalizer %s", holder, podmeta.FinalizerModelCache)
	}
	cache := w.cacheOf(holder)
	v := w.held(at, holder)
	stays := cache != nil && v.isOf(cache) && w.mayStay(p, cache, at.node)
	_, known := w.truth.is(fact{"cache", uid, "", ""}, notices) // else who hears of it may not know its groups as they are
	if known && w.truth.steady(fact{"wanted", uid, at.node, at.path}, "") && !stays && !w.truth.crossed(uid, at.node) {
		w.violated("fetched where it is not wanted", "%s on %s%s", holder, at.node, at.path)
	}
	if v.isOf(cache) {
		c.again(l, v, r)
		return
	}
	c.pauses(p, of)
	for other, why := range c.fetches(p, at, moment) {
		if other == at {
			w.violated("two fetches into one store", "%s%s: %s is asked for %s, %s", at.node, at.path, l.name, holder, why)
		}
	}
	c.nodes(p, at)
}

// sources looks whether two launchers ask the hub at once for the version of a model.
func (c *callCheck) sources(p *process, of asking, uri string) {
	if !strings.HasPrefix(uri, "hf:") || strings.Contains(uri, "@") {
		return
	}
	for other, a := range c.asked {
		if other.holder == of.holder && other.l != of.l && a.by == p && a.uri == uri {
			c.w.violated("two ask the source", "%s is asked for %s for %s, and so is %s", of.l.name, uri, of.holder, other.l.name)
		}
	}
}

// again looks at a call for what is whole.
func (c *callCheck) again(l *launcher, v *version, r launcherapi.ModelRequest) {
	noted := v.wants[r.WantedBy]
	same := noted.lru == (r.Retention == launcherapi.RetentionLRU) && noted.private == r.Private && noted.warm == r.Warm
	if since := v.noted[r.WantedBy]; same && !since.IsZero() && time.Since(since) > notices && c.w.truth.steady(fact{"answers", l.uid, "", ""}, yes) {
		c.w.violated("asked for what is there", "%s has %s for %s", l.name, v.id, r.WantedBy)
	}
}

// pauses looks whether enough time has passed since the last tries failed. Of the last
// one a controller may not have heard.
func (c *callCheck) pauses(p *process, of asking) {
	t := c.tries[of]
	if t == nil || t.by != p || t.full && of.l.disk.freed.After(t.at.Add(-notices)) { // there may be room by now
		return
	}
	pause := 8 * time.Second
	if t.n > 2 {
		pause = min(10*time.Second<<min(t.n-2, 10), 5*time.Minute) - 2*time.Second
	}
	if ago := time.Since(t.at); ago < pause {
		c.w.violated("no growing pause", "%s is asked for %s again %v after it failed the %d. time", of.l.name, of.holder, ago.Round(time.Second), t.n)
	}
}

// moment is how long a call that is not answered keeps others from its store.
const moment = 1900 * time.Millisecond

// fetches are the stores into which something is fetched, as far as a process knows that,
// or may begin to be by what was asked for less than so long ago.
func (c *callCheck) fetches(p *process, to store, recent time.Duration) map[store]string {
	w, all := c.w, map[store]string{}
	for _, l := range w.alive() {
		at := store{l.disk.node, l.disk.path}
		for _, id := range sorted(l.fetching) {
			if c.knows(p, l, l.fetching[id]) {
				all[at] = l.name + " fetches " + id
			}
		}
		for of, a := range c.asked {
			if of.l == l && a.by == p && time.Since(a.since) < recent && (at != to || !l.silent) {
				if v := w.held(at, of.holder); !v.isOf(w.cacheOf(of.holder)) {
					all[at] = l.name + " is asked for " + of.holder
				}
			}
		}
	}
	return all
}

// knows says that a process has to know of a fetch: it has asked for that, and was answered
// before it might ask for another one, or has heard the launcher for long enough; of one that has fallen silent that counts for a while.
func (c *callCheck) knows(p *process, l *launcher, f *pull) bool {
	if l.silent {
		fresh := time.Since(l.silence) < 9*time.Second && p.born.Before(l.silence.Add(-notices))
		return fresh && f.began.Before(l.silence.Add(-2*longestLag)) && l.reachable.Before(l.silence.Add(-notices))
	}
	heard := l.reachable.Before(f.began) || time.Since(l.reachable) > notices
	return f.by == p && heard && !f.slow || time.Since(f.began) > notices && time.Since(l.reachable) > notices && time.Since(p.born) > notices
}

// nodes looks whether more nodes of a group fetch than may.
func (c *callCheck) nodes(p *process, at store) {
	w := c.w
	fetching := c.fetches(p, at, time.Hour)
	for _, g := range all[*v1alpha1.ModelCacheNodeGroup](w.api, groups) {
		if _, steady := w.truth.is(fact{"group", g.Name, "", ""}, notices); !steady || g.Spec.MaxConcurrentNodes == nil || g.Spec.Path != at.path {
			continue
		}
		member := func(node string) bool { return w.truth.steady(fact{"member", g.Name, node, ""}, yes) }
		var others []string
		for other, why := range fetching {
			if other != at && other.path == at.path && member(other.node) {
				others = append(others, why)
			}
		}
		if member(at.node) && len(others) >= int(*g.Spec.MaxConcurrentNodes) {
			w.violated("too many nodes fetch", "%s is asked, and of group %s %d may: %s", at.node, g.Name, *g.Spec.MaxConcurrentNodes, strings.Join(others, ", "))
		}
	}
}

// pulled notes what has become of a call to fetch.
func (c *callCheck) pulled(p *process, l *launcher, r launcherapi.ModelRequest, m launcherapi.Model, err error) {
	c.runs[p]--
	of := asking{l, r.WantedBy}
	slow := time.Since(c.asked[of].since) >= moment
	if c.asked[of].by == p {
		delete(c.asked, of)
	}
	if p.dead {
		return
	}
	switch {
	case err != nil:
		c.w.note("%s could not: %v", l.name, err)
		c.failed(p, of, err)
	case m.State == launcherapi.ModelReady:
		delete(c.tries, of)
	default:
		if f := l.fetching[m.ID]; f != nil {
			f.by, f.slow = p, slow
		}
	}
}

func (c *callCheck) failed(p *process, of asking, err error) {
	t := c.tries[of]
	if t == nil || t.by != p {
		t = &tries{by: p}
		c.tries[of] = t
	}
	refused, is := errors.AsType[*program.Error](err)
	t.full = is && refused.FailureCause == fetchapi.ReasonCapacityExceeded
	t.n++
	t.at = time.Now()
}

// ended forgets what has failed of a launcher that ends: it may be that no controller has
// heard of it.
func (c *callCheck) ended(l *launcher) {
	for of := range c.tries {
		if of.l == l {
			delete(c.tries, of)
		}
	}
}

// broke notes that a fetch broke off, of which the controller hears that has asked for
// it: another one, which leads since, has not counted the tries.
func (c *callCheck) broke(l *launcher, f *pull, err error) {
	if l.answers() && f.by == c.w.proc {
		c.failed(c.w.proc, asking{l, f.holder}, err)
	}
}

// remove looks at a call that has a model wanted no more.
func (c *callCheck) remove(p *process, l *launcher, id, holder string) {
	w := c.w
	if p.dead {
		return
	}
	w.note("%s is asked to drop %s for %s", l.name, id, holder)
	c.begin(p)
	delete(c.tries, asking{l, holder}) // where it is wanted anew, it is tried anew
	uid, at := uidOf(holder), store{l.disk.node, l.disk.path}
	if w.truth.steady(fact{"leased", id, at.node, at.path}, yes) {
		w.violated("dropped while it is in use", "%s on %s%s", id, at.node, at.path)
	}
	v := w.disk(at.node, at.path).versions[id]
	wanted, _ := w.truth.is(fact{"wanted", uid, at.node, at.path}, 0)
	replaced := v != nil && (v.damaged || v.isOther(w.cacheOf(holder))) // it takes the room of the copy that is to come
	switch {
	case !replaced && w.truth.steady(fact{"cache", uid, "", ""}, kept) && w.truth.steady(fact{"wanted", uid, at.node, at.path}, yes) && !w.truth.crossed(uid, at.node):
		w.violated("dropped where it is wanted", "%s of %s on %s%s", id, holder, at.node, at.path)
	case w.truth.steady(fact{"cache", uid, "", ""}, kept) && w.replaced(l, id, holder):
		w.violated("dropped while a launcher is replaced", "%s of %s on %s%s", id, holder, at.node, at.path)
	case w.truth.steady(fact{"cache", uid, "", ""}, missing) && (!replaced || wanted != yes):
		w.violated("dropped for want of a group", "%s of %s on %s%s", id, holder, at.node, at.path)
	}
}

// replaced says that a launcher of a group without labels, which a cache names, has gone a
// moment ago from a store that has the model. The controller knows of the model by l, which
// has not gone.
func (w *world) replaced(l *launcher, id, holder string) bool {
	c, at := w.cacheOf(holder), store{l.disk.node, l.disk.path}
	v := w.disk(at.node, at.path).versions[id]
	if v == nil || !v.whole() || time.Since(v.published) <= notices || !w.truth.steady(fact{"answers", l.uid, "", ""}, yes) {
		return false
	}
	for _, name := range c.Spec.NodeGroups {
		g, there := w.api.objects[groups][name].(*v1alpha1.ModelCacheNodeGroup)
		if !there || len(g.Spec.NodeSelector) > 0 || g.Spec.Path != at.path || w.api.objects[nodes][at.node] == nil {
			continue
		}
		k := w.truth.facts[fact{"member", name, at.node, ""}]
		if _, steady := w.truth.is(fact{"named", string(c.UID), name, ""}, notices); steady && k != nil && k.is == "" && time.Since(k.since) < 30*time.Second {
			return true
		}
	}
	return false
}

func (c *callCheck) removed(p *process) { c.runs[p]-- }
