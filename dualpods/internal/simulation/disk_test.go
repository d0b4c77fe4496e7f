package simulation

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// machine is what a node is made of. It goes on where the node's object is gone.
type machine struct {
	name  string
	up    bool             // its kubelet says that it is ready
	disks map[string]*disk // by path
	gpus  []string
}

// disk is a store of models: a folder of a machine.
type disk struct {
	node, path string
	versions   map[string]*version // by id
	owner      *launcher           // whose pulls run; nil: nobody's
	pulls      int                 // of the owner, that run
	limit      int64               // bytes; 0: none
	freed      time.Time           // when a version went that was whole
}

// version is one of a model, as far as it is on a disk.
type version struct {
	id, uri, revision string
	bytes, fetched    int64
	mark              bool      // it is whole and was published
	damaged           bool      // a file of it is not as it was
	published, used   time.Time // when
	wants             map[string]want
	leases            map[string]time.Time // since when, by holder
	noted             map[string]time.Time // since when a holder has it whole as it is noted
}

// want is what a holder has said of a version.
type want struct{ lru, private, warm bool }

func (v *version) whole() bool { return v.mark && !v.damaged }

// isOf reports whether a version is whole, and the one that a cache is of.
func (v *version) isOf(c *v1alpha1.ClusterModelCache) bool {
	return v != nil && v.whole() && !v.isOther(c)
}

// isOther reports whether a cache is of another version of the hub's model.
func (v *version) isOther(c *v1alpha1.ClusterModelCache) bool {
	return c != nil && strings.HasPrefix(v.uri, "hf:") && c.Status.Revision != "" && v.revision != c.Status.Revision
}

// private reports whether all who want a version say that it is private.
func (v *version) private() bool {
	for _, w := range v.wants {
		if !w.private {
			return false
		}
	}
	return len(v.wants) > 0
}

// model is how a launcher shows a version.
func (v *version) model() launcherapi.Model {
	m := launcherapi.Model{
		ID: v.id, URI: v.uri, Revision: v.revision, Bytes: v.bytes, State: launcherapi.ModelReady, WantedBy: sorted(v.wants), InUseBy: sorted(v.leases), Refs: []string{"main"},
	}
	for _, holder := range m.WantedBy {
		if w := v.wants[holder]; w.lru {
			m.LRUBy = append(m.LRUBy, holder)
		}
		if v.wants[holder].private {
			m.PrivateBy = append(m.PrivateBy, holder)
		}
		if v.wants[holder].warm {
			m.WarmBy = append(m.WarmBy, holder)
		}
	}
	if published := v.published; v.mark {
		m.Published = &published
	}
	switch {
	case !v.mark:
		m.State = launcherapi.ModelPartial
	case v.damaged:
		m.State = launcherapi.ModelDamaged
	}
	return m
}

// keeps says that a version may not go to make room for another.
func (v *version) keeps() bool {
	if len(v.leases) > 0 {
		return true
	}
	for _, w := range v.wants {
		if !w.lru {
			return true
		}
	}
	return false
}

// makeRoom has a version fit beside what is there and promised; evicts says whether
// others may go for it. Nothing goes where it would not fit all the same.
func (d *disk) makeRoom(w *world, v *version, evicts bool) bool {
	if d.limit == 0 {
		return true
	}
	room := d.limit - v.bytes
	var partial, idle []*version
	for _, id := range sorted(d.versions) {
		other := d.versions[id]
		switch p := d.pull(id); {
		case other == v:
		case p != nil:
			room -= other.bytes
		case !other.mark:
			room -= other.fetched
			partial = append(partial, other)
		default:
			room -= other.fetched
			if !other.keeps() {
				idle = append(idle, other)
			}
		}
	}
	slices.SortFunc(idle, func(a, b *version) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.id, b.id)) })
	var gone []*version
	for _, other := range partial {
		if room < 0 {
			room += other.fetched
			gone = append(gone, other)
		}
	}
	for _, other := range idle {
		if room < 0 && evicts {
			room += other.fetched
			gone = append(gone, other)
		}
	}
	if room < 0 {
		return false
	}
	for _, other := range gone {
		w.note("%s of %s goes from %s to make room", other.uri, other.revision, d.node)
		d.drop(other)
	}
	return true
}

// pull is the fetch of a version by whoever owns the store; nil: there is none.
func (d *disk) pull(id string) *pull {
	if d.owner == nil {
		return nil
	}
	return d.owner.fetching[id]
}

// remove is what a launcher does that a holder wants a version no more.
func (d *disk) remove(id, holder string) {
	v := d.versions[id]
	if v == nil {
		return
	}
	delete(v.wants, holder)
	delete(v.noted, holder)
	if len(v.wants) == 0 {
		d.drop(v)
	}
}

func (d *disk) drop(v *version) {
	delete(d.versions, v.id)
	if v.mark {
		d.freed = time.Now()
	}
}

// shown is what a launcher says of its store.
func (l *launcher) shown() map[string]launcherapi.Model {
	models := map[string]launcherapi.Model{}
	for id, v := range l.disk.versions {
		models[id] = v.model()
	}
	for id, f := range l.failed {
		if m := models[id]; m.State != launcherapi.ModelReady {
			m.ID, m.URI, m.Revision, m.Bytes = id, f.version.uri, f.version.revision, f.version.bytes
			m.State, m.Cause, m.Reason = launcherapi.ModelFailed, f.cause, f.why
			m.WantedBy = with(m.WantedBy, f.holder)
			models[id] = m
		}
	}
	for id, p := range l.fetching {
		m := models[id]
		m.State, m.Reason, m.WantedBy = launcherapi.ModelDownloading, "", with(m.WantedBy, p.holder)
		m.FetchedBytes = p.version.fetched
		models[id] = m
	}
	return models
}

func with(holders []string, holder string) []string {
	if holder == "" || slices.Contains(holders, holder) {
		return holders
	}
	return slices.Sorted(slices.Values(append(slices.Clone(holders), holder)))
}

// instancesNow is what a launcher says of its instances.
func (l *launcher) instancesNow() map[string]launcherapi.Instance { return maps.Clone(l.instances) }
