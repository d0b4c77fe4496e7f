package simulation

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// happen has something happen.
func (w *world) happen(e event) {
	for _, some := range []func(event) bool{w.happenToCaches, w.happenToNodes, w.happenToLaunchers, w.happenToSources, w.happenToController, w.happenToRequesters} {
		if some(e) {
			return
		}
	}
	panic("nothing is known of " + e.what)
}

// times are how long something lasts.
func (e event) lasts(from, to time.Duration) time.Duration {
	return from + (to-from)*time.Duration(e.arg/64%256)/256
}

func (w *world) happenToCaches(e event) bool {
	a := w.api
	switch e.what {
	case "make cache":
		w.makeCache(e.arg)
	case "delete cache":
		if name, ok := pick(sorted(a.objects[caches]), e.arg); ok {
			a.remove(caches, name)
		}
	case "silence and delete": // one that somebody has who does not answer
		for _, l := range w.alive() {
			for _, name := range sorted(a.objects[caches]) {
				if v := w.held(store{l.disk.node, l.disk.path}, modelcache.Holder(a.objects[caches][name].(*v1alpha1.ClusterModelCache))); v != nil && !l.silent {
					w.silenceOne(l, time.Minute)
					w.after(e.lasts(12*time.Second, 30*time.Second), func() { a.remove(caches, name) })
					return true
				}
			}
		}
	case "edit cache":
		if name, ok := pick(sorted(a.objects[caches]), e.arg); ok {
			change(a, caches, name, func(c *v1alpha1.ClusterModelCache) { w.editCache(c, e.arg/8) })
		}
	case "make group":
		if name := groupNames[e.arg%3]; a.objects[groups][name] == nil {
			w.putGroup(e.arg)
		}
	case "delete group":
		name := groupNames[e.arg%3]
		a.remove(groups, name)
	case "edit group":
		if name, ok := pick(sorted(a.objects[groups]), e.arg); ok {
			change(a, groups, name, func(g *v1alpha1.ModelCacheNodeGroup) {
				if e.arg/4%2 == 0 || g.Spec.NodeSelector == nil {
					w.limitNodes(g)
				} else {
					g.Spec.NodeSelector = map[string]string{groupNames[e.arg/8%2]: "yes"}
				}
			})
		}
	default:
		return false
	}
	return true
}

func (w *world) makeCache(arg uint64) {
	n := arg % uint64(len(w.sources))
	name := fmt.Sprintf("cache-%d", n)
	if arg/16%8 == 0 { // a second one of the model
		name += "-too"
	}
	if w.api.objects[caches][name] != nil {
		return
	}
	c := &v1alpha1.ClusterModelCache{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Source.URI = w.sources[n].uri
	c.Spec.Scheduling = v1alpha1.SchedulingPrefer
	w.editCache(c, arg/128)
	for _, g := range groupNames {
		if w.Chance("of "+g, 50) {
			c.Spec.NodeGroups = append(c.Spec.NodeGroups, g)
		}
	}
	if len(c.Spec.NodeGroups) == 0 {
		c.Spec.NodeGroups = []string{groupNames[arg/4%3]}
	}
	if w.sources[n].token != "" {
		c.Spec.Credentials = &v1alpha1.ModelCredentials{SecretRef: &v1alpha1.SecretReference{Name: simSecret}, Shared: arg/8%2 == 0}
	}
	w.api.put(c)
}

func (w *world) editCache(c *v1alpha1.ClusterModelCache, arg uint64) {
	c.Generation++
	switch arg % 5 {
	case 0:
		c.Spec.Retention = v1alpha1.RetentionLRU
	case 1:
		c.Spec.Retention = v1alpha1.RetentionKeep
	case 2:
		c.Spec.Warm = v1alpha1.WarmPageCache
	case 3:
		c.Spec.Scheduling = []v1alpha1.ModelScheduling{v1alpha1.SchedulingNone, v1alpha1.SchedulingPrefer, v1alpha1.SchedulingRequire}[arg/8%3]
	case 4:
		if of := c.Spec.Credentials; of != nil {
			of.Shared = !of.Shared
		}
		if len(c.Spec.NodeGroups) > 0 {
			c.Spec.NodeGroups = []string{groupNames[arg/8%3]}
		}
	}
}

func (w *world) happenToNodes(e event) bool {
	a := w.api
	name, ok := pick(sorted(a.objects[nodes]), e.arg)
	switch e.what {
	case "label node":
		if ok {
			change(a, nodes, name, func(n *corev1.Node) {
				g := groupNames[e.arg/8%2]
				if n.Labels[g] != "" {
					delete(n.Labels, g)
				} else {
					n.Labels[g] = "yes"
				}
			})
		}
	case "unselect node":
		if ok {
			w.unselect(e, name)
		}
	case "odd label":
		if ok {
			change(a, nodes, name, func(n *corev1.Node) { n.Labels[podmeta.ModelLabel(fmt.Sprint("cache-", e.arg/8%5))] = "odd" })
		}
	case "node down":
		if ok {
			w.turn(name, false)
			w.after(e.lasts(time.Second, 90*time.Second), func() { w.turn(name, true) })
			if e.arg%2 == 0 { // and nobody reaches it
				w.silence(name, e.lasts(time.Second, 90*time.Second))
			}
		}
	case "node leaves":
		if ok && len(a.objects[nodes]) > 1 {
			w.loseNode(name)
		}
	case "node joins":
		for _, name := range sorted(w.machines) { // one that was away, with what it has
			if a.objects[nodes][name] == nil {
				w.putNode(name)
				return true
			}
		}
		w.putNode(fmt.Sprint("n", len(w.machines)))
	case "node comes back empty":
		if ok {
			w.loseNode(name)
			w.machines[name].disks = map[string]*disk{}
			w.after(e.lasts(time.Millisecond, 30*time.Second), func() {
				if a.objects[nodes][name] == nil {
					w.putNode(name)
				}
			})
		}
	case "cordon":
		if ok {
			change(a, nodes, name, func(n *corev1.Node) { n.Spec.Unschedulable = !n.Spec.Unschedulable })
		}
	case "refuse labels":
		if ok {
			a.refuses[name] = true
			w.after(e.lasts(time.Second, 3*time.Minute), func() { delete(a.refuses, name) })
		}
	default:
		return false
	}
	return true
}

// silence has nobody reach the launchers of a node for a while.
func (w *world) silence(node string, d time.Duration) {
	for _, l := range w.alive() {
		if l.disk.node == node {
			w.silenceOne(l, d)
		}
	}
}

func (w *world) silenceOne(l *launcher, d time.Duration) {
	if l.silent || w.calm {
		return
	}
	w.note("%s is silent for %v", l.name, d)
	l.silent = true
	l.reach()
	w.after(d, func() {
		l.silent = false
		l.reach()
	})
}

func (w *world) happenToLaunchers(e event) bool {
	l, ok := pick(w.alive(), e.arg)
	switch e.what {
	case "end launcher": // its container is started again
		if ok {
			l.end()
			w.after(e.lasts(10*time.Millisecond, 20*time.Second), func() {
				if w.programs[l.uid] == l && !l.up && w.api.objects[pods][l.name].GetDeletionTimestamp() == nil {
					l.begin()
				}
			})
		}
	case "replace launcher":
		if ok {
			w.dropLauncher(l)
			w.after(w.relaunch, func() { w.putLauncher(l.disk.node, l.group) })
		}
	case "remove launcher":
		if ok {
			w.dropLauncher(l)
		}
	case "add launcher":
		if name, ok := pick(sorted(w.api.objects[nodes]), e.arg); ok {
			w.putLauncher(name, groupNames[e.arg/8%3])
		}
	case "silence launcher":
		for _, busy := range w.alive() { // rather one that fetches
			if len(busy.fetching) > 0 && e.arg%3 > 0 {
				l = busy
			}
		}
		if ok {
			w.silenceOne(l, e.lasts(time.Second, 60*time.Second))
		}
	case "damage":
		if ok {
			if id, there := pick(sorted(l.disk.versions), e.arg/8); there {
				v := l.disk.versions[id]
				v.damaged = v.mark
				clear(v.noted)
				l.changed()
			}
		}
	case "take lease":
		if ok {
			if id, there := pick(sorted(l.disk.versions), e.arg/8); there && l.disk.versions[id].whole() {
				l.disk.versions[id].leases["by hand"] = time.Now()
				l.changed()
			}
		}
	case "give lease":
		if ok {
			for _, v := range l.disk.versions {
				delete(v.leases, "by hand")
			}
			l.changed()
		}
	case "end instance":
		if ok {
			if id, there := pick(sorted(l.instances), e.arg/8); there {
				w.endInstance(l, id)
			}
		}
	default:
		return false
	}
	return true
}

func (w *world) happenToSources(e event) bool {
	s, _ := pick(w.sources, e.arg)
	switch e.what {
	case "trouble source":
		s.trouble = troubles[e.arg/8%uint64(len(troubles))]
		w.after(e.lasts(time.Second, 4*time.Minute), func() { s.trouble = "" })
	case "hang source":
		s.hangs = true
		w.after(e.lasts(time.Second, 4*time.Minute), func() { s.hangs = false })
	case "break fetches":
		w.breaks += 1 + int(e.arg%8)
	case "move branch":
		s.commits++
	case "secret at a fetch": // that begins next
		w.secretNext = true
	case "secret":
		switch e.arg % 3 {
		case 0:
			if o := w.api.objects[secrets][simSecret]; o != nil {
				w.api.drop(o)
			}
		case 1:
			w.putSecret("wrong")
		case 2:
			w.putSecret(simToken)
		}
	default:
		return false
	}
	return true
}

func (w *world) happenToController(e event) bool {
	switch e.what {
	case "kill controller":
		w.proc.kill()
	case "kill at step":
		w.proc.killAt = w.steps + 1 + int(e.arg%12)
	case "API down":
		w.api.down = true
		w.after(e.lasts(time.Second, 60*time.Second), func() { w.api.down = false })
	case "API flaky":
		w.api.flaky = 10 + e.arg%60
		w.after(e.lasts(time.Second, 60*time.Second), func() { w.api.flaky = 0 })
	default:
		return false
	}
	return true
}

func (w *world) happenToRequesters(e event) bool {
	name, ok := pick(w.requesters(), e.arg)
	switch e.what {
	case "make requester":
		for n := range 1 + e.arg/512%3 {
			w.putRequester(e.arg + n*uint64(len(w.sources)*7))
		}
	case "race for a sleeper":
		w.raceForSleeper(e)
	case "delete requester":
		if ok {
			w.dropRequester(name, e.arg/8%4 == 0)
		}
	case "refuse requester":
		for waiting := range w.waits {
			w.api.refuses[waiting] = true
			w.after(e.lasts(time.Second, 60*time.Second), func() {
				delete(w.api.refuses, waiting)
				w.trouble = later(w.trouble, time.Now())
			})
		}
	default:
		return false
	}
	return true
}

// calmDown ends all faults.
func (w *world) calmDown() {
	w.note("--- nothing happens any more")
	w.calm = true
	w.api.down, w.api.flaky, w.breaks, w.secretNext = false, 0, 0, false
	clear(w.api.refuses)
	w.trouble = later(w.trouble, time.Now())
	w.proc.killAt = 0
	w.putSecret(simToken)
	for _, s := range w.sources {
		s.trouble, s.hangs, s.slow = "", false, false
	}
	for _, name := range sorted(w.api.objects[nodes]) {
		w.turn(name, true)
		w.selectNode(name, true)
	}
	for _, l := range w.launchers() {
		for _, v := range l.disk.versions {
			delete(v.leases, "by hand")
		}
		if !l.up && w.api.objects[pods][l.name].GetDeletionTimestamp() == nil {
			l.begin()
		}
		if l.silent {
			l.silent = false
			l.reach()
		}
		l.changed()
	}
	for _, name := range w.requesters() {
		if w.Chance("stays", 50) {
			w.dropRequester(name, true)
		}
	}
	for _, l := range w.alive() {
		for _, id := range sorted(l.instances) {
			if w.Chance("ends "+id, 70) {
				w.endInstance(l, id)
			}
		}
	}
}
