package binding

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// Slices of a Service that all requesters are endpoints of, in some schedules. Package endpoints
// keeps the real ones; its own tests are about that.

// simSlice is what the slices say of a requester.
type simSlice struct {
	leads   bool // as the API server has it
	proxies bool // the slowest proxy leads new connections to it
	written int  // how often it was written
	stale   time.Time
}

// slowestProxy is how late a proxy hears of a slice at most.
const slowestProxy = decide.EndpointsDelay - 500*time.Millisecond

// lead is a write of a slice.
func (s *sim) lead(uid types.UID, leads bool) {
	slice := s.slices[uid]
	if slice == nil {
		slice = &simSlice{}
		s.slices[uid] = slice
	}
	s.note("the slices lead to %s: %t", uid, leads)
	slice.leads = leads
	slice.written++
	s.after(s.between("slices watched", time.Millisecond, 20*time.Millisecond), func() { s.inc.slices.watched(uid) })
	if leads {
		slice.proxies = true
		return
	}
	written := slice.written
	s.after(s.between("proxy", 0, slowestProxy), func() {
		if slice.written == written {
			slice.proxies = false
		}
	})
}

// simEndpoints keeps the slices for a controller process.
type simEndpoints struct {
	inc            *incarnation
	read           bool // the slices
	words          map[types.UID]bool
	may            map[types.UID]bool // slices lead there, or a write that says so is under way
	unsure         map[types.UID]bool // the last write had no answer
	left           map[types.UID]time.Time
	writing, again map[types.UID]bool
}

// newEndpoints has a process read the slices of an earlier one, a moment after it has begun.
func (s *sim) newEndpoints(inc *incarnation) *simEndpoints {
	e := &simEndpoints{
		inc: inc, words: map[types.UID]bool{}, may: map[types.UID]bool{}, unsure: map[types.UID]bool{}, left: map[types.UID]time.Time{}, writing: map[types.UID]bool{}, again: map[types.UID]bool{},
	}
	s.after(s.between("reads slices", time.Millisecond, 100*time.Millisecond), func() {
		e.read = true
		for _, uid := range slices.Sorted(maps.Keys(s.slices)) {
			e.may[uid] = s.slices[uid].leads
			e.write(uid)
		}
		for _, uid := range slices.Sorted(maps.Keys(e.words)) {
			e.write(uid)
		}
	})
	return e
}

func (e *simEndpoints) Note(_ context.Context, pod *corev1.Pod, serves bool) {
	e.inc.s.locked(func() {
		e.words[pod.UID] = serves
		e.write(pod.UID)
	})
}

func (e *simEndpoints) Forget(uid types.UID) {
	e.inc.s.locked(func() { delete(e.words, uid) })
}

func (e *simEndpoints) Leads(_ context.Context, pod *corev1.Pod) (leads bool, since time.Time) {
	e.inc.s.locked(func() {
		switch left, ok := e.left[pod.UID]; {
		case !e.inc.s.service:
		case !e.read || e.may[pod.UID]:
			leads = true
		case ok:
			since = left
		default:
			since = e.inc.born
		}
	})
	return leads, since
}

// wants reports whether the slices are to lead to a requester, as far as the process knows.
func (e *simEndpoints) wants(uid types.UID) bool {
	p := e.inc.s.programs[uid]
	if p == nil {
		return false
	}
	pod := e.inc.cache.pods[p.pod]
	if pod == nil || pod.UID != uid || pod.DeletionTimestamp != nil {
		return false
	}
	if serves, said := e.words[uid]; said {
		return serves
	}
	return e.may[uid]
}

// write has the slices say what the process wants, by one write at a time.
func (e *simEndpoints) write(uid types.UID) {
	s, wants := e.inc.s, e.wants(uid)
	if e.inc.dead || !s.service || !e.read {
		return
	}
	if e.writing[uid] {
		e.again[uid] = true
		return
	}
	if wants == e.may[uid] && !e.unsure[uid] {
		return
	}
	e.writing[uid], e.may[uid] = true, true
	takes, version := s.between("slice", time.Millisecond, 10*time.Millisecond), s.writesOfSlice(uid)
	if s.chance("slow slice", 5) {
		takes *= 300
	}
	s.after(takes, func() {
		conflict := s.writesOfSlice(uid) != version // an earlier process has written it meanwhile
		fails := conflict || s.api.down || s.api.flaky > 0 && s.draw("flaky slice", 100) < s.api.flaky
		answered := !fails && !e.inc.dead
		if answered || !conflict && s.chance("lost slice", 50) && !s.api.down {
			s.lead(uid, wants)
		}
		if e.unsure[uid] = fails; fails {
			s.after(50*time.Millisecond, func() { e.wrote(uid, true) })
			return
		}
		s.after(s.between("slice back", time.Millisecond, 10*time.Millisecond), func() { e.wrote(uid, wants) })
	})
}

// writesOfSlice counts the writes that a slice has had, as its resource version does.
func (s *sim) writesOfSlice(uid types.UID) int {
	if slice := s.slices[uid]; slice != nil {
		return slice.written
	}
	return 0
}

// watched is called when a process hears that a slice was written, perhaps by an earlier process.
func (e *simEndpoints) watched(uid types.UID) {
	if e.read && !e.writing[uid] {
		e.may[uid] = e.inc.s.slices[uid].leads
		e.write(uid)
	}
}

// wrote is the answer to a write.
func (e *simEndpoints) wrote(uid types.UID, leads bool) {
	delete(e.writing, uid)
	if e.inc.dead {
		return
	}
	if e.may[uid] = leads; !leads {
		e.left[uid] = time.Now()
		e.inc.enqueue(e.inc.s.programs[uid].node)
	}
	delete(e.again, uid)
	e.write(uid)
}

// hears is called when a process hears of a Pod.
func (inc *incarnation) hears(uid types.UID) {
	if inc != nil {
		inc.slices.write(uid)
	}
}

// refuses looks at a program that is unbound while its model is awake: no proxy leads
// connections to it, for which it has a last moment.
func (s *sim) refuses(p *simProgram) {
	slice := s.slices[p.uid]
	if slice == nil || !slice.proxies || !s.wantsEndpoints(p) {
		return
	}
	if pod := p.there(); pod.DeletionTimestamp != nil && time.Until(pod.DeletionTimestamp.Time) < decide.KillMargin+2*detection {
		return // it ends so soon that nobody can wait
	}
	s.violated("requester %s is unbound, and its endpoints may still lead clients to it", p.pod)
}

// wantsEndpoints reports whether somebody could serve the clients of a requester that is
// unbound.
func (s *sim) wantsEndpoints(p *simProgram) bool {
	at := s.recordOf(p.uid)
	if p.there() == nil || at < 0 || s.unreadable(s.records()[at]) || p.odd != "" || s.api.nodes[p.node] == nil {
		return false
	}
	l, i := p.target()
	return l != nil && awake(i) && time.Since(i.awake) > detection && s.api.pods[l.pod] != nil && s.api.pods[l.pod].DeletionTimestamp == nil
}

// checkSlices looks for slices that lead to a requester whose model has not been awake for
// long.
func (s *sim) checkSlices() {
	for _, uid := range slices.Sorted(maps.Keys(s.slices)) {
		slice, p := s.slices[uid], s.programs[uid]
		l, i := p.target()
		known := s.viewOf(l) != nil && s.viewOf(l).Connected && l.reachable()
		if !slice.leads || s.living(uid) == nil || !p.up || p.proxy.State != requesterapi.StateBound || awake(i) || l != nil && !known {
			slice.stale = time.Time{}
			continue
		}
		if slice.stale.IsZero() {
			slice.stale = time.Now()
		}
		since, limit := slice.stale, detection
		if s.calm.After(since) {
			since, limit = s.calm, detection+retryAfter<<doublings
		}
		if slice.proxies && time.Since(since) > limit+4*time.Second { // of a slow write
			s.violated("connections by the slices reach requester %s, and its instance has not been awake for long", p.pod)
		}
	}
}

// checkSlicesAtRest compares the slices with who serves.
func (s *sim) checkSlicesAtRest() {
	if !s.service {
		return
	}
	for _, uid := range slices.Sorted(maps.Keys(s.programs)) {
		p := s.programs[uid]
		_, i := p.target()
		serves := s.living(uid) != nil && p.up && p.proxy.State == requesterapi.StateBound && p.proxy.Ready && awake(i)
		leads := s.slices[uid] != nil && s.slices[uid].leads
		if serves != leads && p.odd == "" {
			s.violated("at rest: requester %s serves: %t, and the slices lead to it: %t", p.pod, serves, leads)
		}
	}
}

func TestDeletedRequesterServesUntilItsEndpointsLeadElsewhere(t *testing.T) {
	without := decide.Without(decide.Tables, "unbinding, in its endpoints")
	killed := append(slices.Clone(deletedWhileItServes), simEvent{at: 19900 * time.Millisecond, what: "kill controller"})
	slices.SortStableFunc(killed, func(a, b simEvent) int { return int(a.at - b.at) })
	for name, script := range map[string][]simEvent{"deleted": deletedWhileItServes, "deleted while no controller runs": killed, "ended by the kubelet": endedWhileItServes(simShutdown)} {
		came, missed := 0, 0
		for seed := range uint64(40) {
			out := simulate(t, seed, script, decide.Tables, false)
			assert.Empty(t, out.wrong, "%s, seed %d", name, seed)
			if out.decided["unbinding, in its endpoints"] {
				came++
			}
			if len(simulate(t, seed, script, without, false).wrong) > 0 {
				missed++
			}
		}
		assert.Positive(t, came, name)
		assert.Positive(t, missed, name)
		t.Logf("%s: %d schedules came by it, and %d went wrong without it", name, came, missed)
	}
}
