package simulation

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// tick looks now and then whether somebody has waited too long.
func (w *world) tick() {
	w.checkGates()
	w.after(2*time.Second, w.tick)
}

// longestGate is how long a requester is kept by its gate at most: twice 5 s that
// launchers and controllers are waited for, 10 s after a write that was refused, and a
// moment to hear of it.
const longestGate = 23 * time.Second

func (w *world) checkGates() {
	if w.proc == nil || w.proc.dead {
		return
	}
	for _, name := range sorted(w.waits) {
		if since := later(w.waits[name], w.trouble); time.Since(since) > longestGate && !w.api.refuses[name] {
			w.violated("kept too long", "%s has its gate for %v", name, time.Since(since).Round(time.Second))
		}
	}
}

// checkRest looks at the world once it has calmed down.
func (w *world) checkRest() {
	for _, c := range all[*v1alpha1.ClusterModelCache](w.api, caches) {
		if c.DeletionTimestamp != nil {
			if w.leased(c, "") {
				continue
			}
			w.violated("not let go", "%s is being deleted, and nothing keeps it", c.Name)
			continue
		}
		if is, _ := w.truth.is(fact{"cache", string(c.UID), "", ""}, 0); is == kept {
			w.checkCache(c)
		}
	}
	w.checkStores()
	w.writes, w.passes = 0, 0
}

func (w *world) checkCache(c *v1alpha1.ClusterModelCache) {
	told := map[string]v1alpha1.ModelNodeState{}
	for _, n := range c.Status.Nodes {
		told[n.Node] = n.State
		if w.api.objects[nodes][n.Node] == nil {
			w.violated("of a node that is gone", "%s tells of %s", c.Name, n.Node)
		}
	}
	for _, node := range all[*corev1.Node](w.api, nodes) {
		is, _ := w.truth.is(fact{"node", string(c.UID), node.Name, ""}, 0)
		state, shown := told[node.Name]
		shown = shown || c.Status.NodesLeftOut > 0
		_, labelled := node.Labels[podmeta.ModelLabel(c.Name)]
		switch is {
		case has:
			w.healed++
			w.checkNoted(c, node.Name)
			if state != v1alpha1.ModelNodeReady && shown || !labelled || !shown {
				w.violated("not told at rest", "%s has %s; told: %s, labelled: %v", node.Name, c.Name, state, labelled)
			}
		case noPlace:
			if labelled || shown && state != "" && !w.leased(c, node.Name) {
				w.violated("told at rest", "%s is not to have %s; told: %s, labelled: %v", node.Name, c.Name, state, labelled)
			}
		case lacks:
			w.checkLack(c, node.Name, state, labelled)
		}
	}
}

// checkNoted looks whether launchers have noted what a cache says of its copies.
func (w *world) checkNoted(c *v1alpha1.ClusterModelCache, node string) {
	of := c.Spec.Credentials
	says := want{lru: c.Spec.Retention == v1alpha1.RetentionLRU, private: of != nil && !of.Shared, warm: c.Spec.Warm == v1alpha1.WarmPageCache}
	for at := range w.wanted(c, node) {
		plain := of != nil
		for _, l := range w.alive() {
			plain = plain && (l.disk.node != node || l.disk.path != at.path || !l.mayHaveCredentials(c))
		}
		v := w.held(at, modelcache.Holder(c))
		source := w.source(v.uri)
		newer := w.disk(at.node, at.path).limit > 0 && !strings.HasPrefix(v.uri, "hf:") && v.revision != source.commit() // for which there may be no room
		if noted := v.wants[modelcache.Holder(c)]; noted != says && !plain && !newer {
			w.violated("not noted", "%s%s has noted %+v for %s, which says %+v", node, at.path, noted, c.Name, says)
		}
	}
}

// mayHaveCredentials reports whether a launcher may get the credentials of a cache.
func (l *launcher) mayHaveCredentials(c *v1alpha1.ClusterModelCache) bool {
	return !l.plain && slices.Contains(c.Spec.Groups(), l.group)
}

// leased says that instances keep what a cache wants on a node, or on any.
func (w *world) leased(c *v1alpha1.ClusterModelCache, node string) bool {
	for _, m := range w.machines {
		for _, d := range m.disks {
			for _, v := range d.versions {
				if hasKey(v.wants, modelcache.Holder(c)) && len(v.leases) > 0 && (node == "" || node == d.node) {
					return true
				}
			}
		}
	}
	return false
}

// checkLack looks why a node has not what it should have.
func (w *world) checkLack(c *v1alpha1.ClusterModelCache, node string, state v1alpha1.ModelNodeState, labelled bool) {
	if state == v1alpha1.ModelNodeReady || state == "" && c.Status.NodesLeftOut == 0 {
		w.violated("not told at rest", "%s lacks %s; told: %q", node, c.Name, state)
	}
	could, silent := true, false
	for at := range w.wanted(c, node) {
		if v := w.held(at, modelcache.Holder(c)); v.isOf(c) {
			continue
		}
		spoken := false
		for _, l := range w.alive() {
			spoken = spoken || l.disk.node == at.node && l.disk.path == at.path && (c.Spec.Credentials == nil || l.mayHaveCredentials(c))
		}
		silent = silent || !spoken
		could = could && spoken && w.fits(c, at)
	}
	if could && (c.Spec.Credentials != nil || w.source(c.Spec.Source.URI).token == "") {
		w.violated("not there", "%s could have %s; told: %s", node, c.Name, state)
	}
	if labelled && !silent {
		w.violated("told at rest", "%s lacks %s and has its label", node, c.Name)
	}
}

// fits says that there is room in a store for the model of a cache, beside all that is
// kept there or wanted.
func (w *world) fits(c *v1alpha1.ClusterModelCache, at store) bool {
	d := w.disk(at.node, at.path)
	used := w.source(c.Spec.Source.URI).bytes
	for _, v := range d.versions {
		if !hasKey(v.wants, modelcache.Holder(c)) && (v.keeps() || c.Spec.Retention == v1alpha1.RetentionLRU) {
			used += v.bytes
		}
	}
	return d.limit == 0 || used <= d.limit
}

// checkStores looks whether something is left that nobody wants.
func (w *world) checkStores() {
	for _, l := range w.alive() {
		for _, id := range sorted(l.disk.versions) {
			v := l.disk.versions[id]
			for _, holder := range sorted(v.wants) {
				if !strings.HasPrefix(holder, "ClusterModelCache/") {
					continue
				}
				is, _ := w.truth.is(fact{"cache", uidOf(holder), "", ""}, 0)
				wanted, _ := w.truth.is(fact{"wanted", uidOf(holder), l.disk.node, l.disk.path}, 0)
				if is != missing && wanted != yes && len(v.leases) == 0 {
					w.violated("left behind", "%s on %s%s for %s", id, l.disk.node, l.disk.path, holder)
				}
				if c := w.cacheOf(holder); c != nil && v.whole() && is == kept && wanted == yes && c.Status.Revision != w.versionOf(c) {
					w.violated("another version", "%s has %s, and %s is called %s", l.name, id, c.Name, c.Status.Revision)
				} else if c != nil && strings.HasPrefix(v.uri, "hf:") && v.whole() && is == kept && v.revision != c.Status.Revision {
					w.violated("another version", "%s has %s, and %s is %s", l.name, id, c.Name, c.Status.Revision)
				}
			}
		}
	}
}

// versionOf is the version of a cache's model: of the hub it is one for all nodes, and of
// other sources that which came last where the controller hears of it.
func (w *world) versionOf(c *v1alpha1.ClusterModelCache) string {
	if strings.HasPrefix(c.Spec.Source.URI, "hf:") {
		return c.Status.Revision
	}
	var last time.Time
	is := c.Status.Revision
	for _, l := range w.alive() {
		if v := w.held(store{l.disk.node, l.disk.path}, modelcache.Holder(c)); v != nil && v.whole() && v.published.After(last) {
			last, is = v.published, v.revision
		}
	}
	return is
}

// checkStill looks how much was done while there was next to nothing to do: who has not
// what he should have is asked every 5 minutes.
func (w *world) checkStill() {
	lacking := 0
	for f, k := range w.truth.facts {
		if f.what == "node" && (k.is == lacks || k.is == unheard) {
			lacking++
		}
	}
	if most := 10 + 24*lacking; w.writes > most {
		w.violated("never rests", "%d writes in %v, with %d nodes that lack something", w.writes, rests, lacking)
	}
	if most := 20 + 60*lacking; w.passes > most {
		w.violated("never rests", "%d passes in %v, with %d nodes that lack something", w.passes, rests, lacking)
	}
	w.checkRest()
}
