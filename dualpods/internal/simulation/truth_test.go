package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	program "hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// fact names something that is so, or not, in the world.
type fact struct{ what, of, node, path string }

// known is how it stands with a fact.
type known struct {
	is    string // empty: nothing of the kind
	since time.Time
	seen  int
}

// truth is what is so, and since when: what a controller says is held against it.
type truth struct {
	w     *world
	facts map[fact]*known
	looks int
}

func newTruth(w *world) *truth { return &truth{w: w, facts: map[fact]*known{}} }

// notices is how long a controller may take to know what is so, and to have told it:
// the lags of its informers and streams, the time for which a question to a launcher
// hangs, and the pause between two passes.
const notices = 10 * time.Second

// What is told of a node and a cache.
const (
	has      = "has it"            // in each folder in which it is wanted, and a launcher of each answers
	unheard  = "has it, unheard"   // likewise, and no launcher of some folder answers
	lacks    = "lacks it"          // in some folder
	noPlace  = "is not to have it" // it is wanted nowhere on the node
	yes      = "yes"
	kept     = "is kept"
	deleting = "is being deleted"
	missing  = "a group of it is missing"
)

// set notes how it stands with a fact, and says whether that has changed.
func (t *truth) set(f fact, is string) (changed bool) {
	k := t.facts[f]
	if k == nil {
		k = &known{since: time.Now()}
		t.facts[f] = k
	}
	if changed = k.is != is; changed {
		k.is, k.since = is, time.Now()
	}
	k.seen = t.looks
	return changed
}

// is says how it stands with a fact, and whether it has stood so for d.
func (t *truth) is(f fact, d time.Duration) (is string, steady bool) {
	k := t.facts[f]
	if k == nil {
		return "", time.Since(t.w.start) >= d
	}
	return k.is, time.Since(k.since) >= d
}

// steady says that something has been so for as long as a controller takes to know it.
func (t *truth) steady(f fact, is string) bool {
	now, steady := t.is(f, notices)
	return steady && now == is
}

// crossed says that the labels of a node and what a cache or its groups say of nodes have both
// changed lately. A controller that hears of one of these late may take the node for a member, or
// for none, which it never was.
func (t *truth) crossed(cache, node string) bool {
	changed := func(f fact) bool {
		_, steady := t.is(f, notices)
		return !steady
	}
	return changed(fact{"selected by", "", node, ""}) && slices.ContainsFunc(groupNames, func(group string) bool {
		return changed(fact{"named", cache, group, ""}) || changed(fact{"selector", group, "", ""})
	})
}

// look finds out what is so.
func (t *truth) look() {
	w := t.w
	t.looks++
	spoken := map[store]bool{}      // somebody answers there
	voices := map[store]*launcher{} // who has answered there for the longest time
	launched := map[fact]bool{}
	for _, l := range w.programs {
		if l.answers() {
			spoken[store{l.disk.node, l.disk.path}] = true
			t.set(fact{"answers", l.uid, "", ""}, yes)
			at := store{l.disk.node, l.disk.path}
			if other := voices[at]; other == nil || l.reachable.Before(other.reachable) {
				voices[at] = l
			}
		}
	}
	for at, l := range voices {
		t.set(fact{"voice", "", at.node, at.path}, l.uid)
	}
	for _, o := range w.api.objects[pods] {
		if pod := o.(*corev1.Pod); len(modelcache.IndexedStore(pod)) > 0 && !w.isStranger(pod) && pod.DeletionTimestamp == nil {
			launched[fact{"launched", pod.Labels[podmeta.LabelModelNodeGroup], pod.Spec.NodeName, ""}] = true
		}
	}
	for name, o := range w.api.objects[groups] {
		g := o.(*v1alpha1.ModelCacheNodeGroup)
		most := 0
		if m := g.Spec.MaxConcurrentNodes; m != nil {
			most = int(*m)
		}
		t.set(fact{"group", name, "", ""}, fmt.Sprint(most))
		of := labels.SelectorFromSet(g.Spec.NodeSelector)
		t.set(fact{"selector", name, "", ""}, of.String())
		for node, o := range w.api.objects[nodes] {
			if len(g.Spec.NodeSelector) > 0 && of.Matches(labels.Set(o.GetLabels())) || len(g.Spec.NodeSelector) == 0 && launched[fact{"launched", name, node, ""}] {
				t.set(fact{"member", name, node, ""}, yes)
			}
		}
	}
	for node, o := range w.api.objects[nodes] {
		t.set(fact{"selected by", "", node, ""}, fmt.Sprint(o.GetLabels()[groupNames[0]], o.GetLabels()[groupNames[1]]))
	}
	for name, m := range w.machines {
		if m.up {
			t.set(fact{"ready", "", name, ""}, yes)
		}
		for _, d := range m.disks {
			for id, v := range d.versions {
				if len(v.leases) > 0 {
					t.set(fact{"leased", id, d.node, d.path}, yes)
				}
			}
		}
	}
	t.taken()
	t.selected()
	for _, s := range w.sources {
		if c := w.cacheOfModel(s.uri); c != nil {
			t.set(fact{"scheduling", s.uri, "", ""}, schedulingOf(c))
		}
	}
	for _, o := range w.api.objects[caches] {
		t.cache(o.(*v1alpha1.ClusterModelCache), spoken)
	}
	for f, k := range t.facts {
		if k.seen != t.looks && k.is != "" {
			t.set(f, "")
		}
	}
}

// taken notes which GPUs a requester is bound with, or an instance uses that does not sleep.
func (t *truth) taken() {
	for _, l := range t.w.programs {
		for _, i := range l.instances {
			if i.State == string(program.Awake) {
				t.set(fact{"taken", i.GPUUUIDs[0], "", ""}, yes)
			}
		}
	}
}

// store is a folder of a node.
type store struct{ node, path string }

func (t *truth) cache(c *v1alpha1.ClusterModelCache, spoken map[store]bool) {
	w := t.w
	stands := kept
	for _, name := range c.Spec.NodeGroups {
		t.set(fact{"named", string(c.UID), name, ""}, yes)
		if w.api.objects[groups][name] == nil {
			stands = missing
		}
	}
	if c.DeletionTimestamp != nil {
		stands = deleting
	}
	t.set(fact{"cache", string(c.UID), "", ""}, stands)
	holder := modelcache.Holder(c)
	for node := range w.api.objects[nodes] {
		state, folders := noPlace, []string{}
		for at := range w.wanted(c, node) {
			t.set(fact{"wanted", string(c.UID), at.node, at.path}, yes)
			now, folder := has, at.path
			if v := w.held(at, holder); !v.isOf(c) {
				now, folder = lacks, at.path+" lacks it"
			} else if !spoken[at] {
				now = unheard
			}
			folders = append(folders, folder)
			if state == noPlace || now == lacks || now == unheard && state == has {
				state = now
			}
		}
		slices.Sort(folders)
		is := fact{"node", string(c.UID), node, ""}
		t.set(is, state)
		if t.set(fact{"folders", string(c.UID), node, ""}, strings.Join(folders, " ")) {
			t.facts[is].since = time.Now() // it has it, or lacks it, elsewhere
		}
		if state == has || state == unheard {
			t.set(fact{"whole", string(c.UID), node, ""}, yes)
		}
	}
}

// wanted are the stores of a node in which a cache is wanted.
func (w *world) wanted(c *v1alpha1.ClusterModelCache, node string) map[store]bool {
	stores := map[store]bool{}
	if c.DeletionTimestamp != nil {
		return stores
	}
	for _, name := range c.Spec.NodeGroups {
		if g, there := w.api.objects[groups][name].(*v1alpha1.ModelCacheNodeGroup); there {
			if k := w.truth.facts[fact{"member", name, node, ""}]; k != nil && k.is == yes && k.seen == w.truth.looks {
				stores[store{node, g.Spec.Path}] = true
			}
		}
	}
	return stores
}

// held is what a store has for a holder: what is whole first.
func (w *world) held(at store, holder string) (v *version) {
	m := w.machines[at.node]
	if m == nil || m.disks[at.path] == nil {
		return nil
	}
	d := m.disks[at.path]
	for _, id := range sorted(d.versions) {
		if other := d.versions[id]; hasKey(other.wants, holder) && (v == nil || other.whole()) {
			v = other
		}
	}
	return v
}
