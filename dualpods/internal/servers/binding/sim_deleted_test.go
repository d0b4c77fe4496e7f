package binding

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// How requesters end that are deleted with a grace: clients come to them until all
// proxies have heard of it.

// endsInOrder has the kubelet end a requester as it ends most Pods: its preStop hook runs,
// then its program gets SIGTERM, and it is killed when its grace is over. ok is false for
// one that is killed before.
func (s *sim) endsInOrder(pod *corev1.Pod, p *simProgram) (ok bool) {
	now := s.api.pods[pod.Name]
	if now == nil || !p.up || p.hung || *now.DeletionGracePeriodSeconds == 0 || !s.chance("ends in order", 70) {
		return false
	}
	grace := time.Duration(*now.DeletionGracePeriodSeconds) * time.Second
	var hook time.Duration
	if s.chance("pre-stop", 50) {
		hook = s.between("pre-stop hook", 0, 10*time.Second)
	}
	s.after(hook, p.toldToEnd)
	s.after(grace, p.ends)
	return true
}

// toldToEnd has the program get SIGTERM.
func (p *simProgram) toldToEnd() {
	if p.dead || p.proxy.Terminating {
		return
	}
	p.s.note("%s is told to end", p.pod)
	p.proxy.Terminating, p.proxy.Holding = true, ""
	if p.proxy.Ready {
		p.delayed = time.Now().Add(p.s.between("shutdown delay", 0, 6*time.Second))
	}
	p.proxy.Ready = false
	p.endsUnbound()
}

// endsUnbound ends a program that was told to end and is not bound.
func (p *simProgram) endsUnbound() {
	if p.up && p.proxy.Terminating && p.proxy.State == requesterapi.StateUnbound {
		p.s.after(p.s.between("program ends", time.Millisecond, 100*time.Millisecond), p.ends)
	}
}

// ends is the end of the program and of its Pod's containers.
func (p *simProgram) ends() {
	if pod := p.s.api.pods[p.pod]; !p.dead && pod != nil && pod.UID == p.uid {
		p.s.endContainers(pod)
	}
}

// answer is what the program says of itself.
func (p *simProgram) answer() requesterapi.Proxy {
	proxy := p.proxy
	if left := time.Until(p.delayed); left > 0 && proxy.State == requesterapi.StateBound {
		proxy.ShutdownDelayMS = left.Milliseconds() + 1
	}
	return proxy
}

// unbinds looks at a program that is unbound: while proxies may lead clients to a requester
// that ends, and whose model is awake, it refuses none.
func (s *sim) unbinds(p *simProgram) {
	pod, at := s.api.pods[p.pod], s.recordOf(p.uid)
	switch {
	case pod == nil || pod.UID != p.uid:
		return
	case pod.DeletionTimestamp == nil && !p.proxy.Terminating && !podmeta.Ending(pod):
		return
	case pod.DeletionTimestamp != nil && time.Until(pod.DeletionTimestamp.Time) < decide.KillMargin+2*detection:
		return
	}
	if at < 0 || s.unreadable(s.records()[at]) || !decide.SameSet(s.records()[at].GPUs, p.said()) || p.odd != "" || s.api.nodes[p.node] == nil {
		return
	}
	if at, ok := s.repaired[p.uid]; ok && time.Since(at) < longestLag+justNow {
		return // the controller may not have heard yet that its record can be read again
	}
	_, i := p.target()
	serves := p.proxy.Ready || time.Until(p.delayed) > justNow
	if serves && awake(i) && time.Since(i.awake) > detection {
		s.violated("requester %s, which ends, is unbound, and proxies may still lead clients to it", p.pod)
	}
}

// Why a kubelet ends a requester that nobody deletes, as the argument of the event says it.
const (
	simDeadline = iota // activeDeadlineSeconds has passed
	simShutdown        // its node shuts down
	simEnds
)

// endsByKubelet has the kubelet end a requester that nobody deletes: its preStop hook runs, and
// then its program gets SIGTERM. All that the Pod says of it is that it is not ready, until its
// containers have ended. A kubelet whose deadline has passed says so at once, and once. One that
// shuts down says nothing but for a probe that is waiting for its answer at SIGTERM, and that is
// none if there was a hook: it has sent no probe since.
func (s *sim) endsByKubelet(pod *corev1.Pod, p *simProgram, why uint64) {
	const grace = 30 * time.Second
	var hook time.Duration
	if s.chance("pre-stop", 50) {
		hook = s.between("pre-stop hook", 0, 10*time.Second)
	}
	s.note("the kubelet ends %s, whose hook takes %s", pod.Name, hook)
	if why == simDeadline {
		s.api.changeThis(pod, endsUnready)
	}
	s.after(s.between("SIGTERM", time.Millisecond, time.Second)+hook, func() {
		p.toldToEnd()
		if why == simDeadline || hook > 0 {
			return
		}
		s.after(s.between("probe", time.Millisecond, time.Second), func() {
			if now := s.api.pods[pod.Name]; now != nil && now.UID == pod.UID && !podmeta.Finished(now) {
				s.api.changeThis(pod, endsUnready)
			}
		})
	})
	s.after(grace, func() {
		undisturbed := time.Since(s.calm) > grace && !s.api.down && s.api.flaky == 0 && s.api.nodes[p.node] != nil
		told := why == simDeadline || hook == 0
		if told && p.up && !p.hung && p.odd == "" && undisturbed && p.proxy.Terminating && p.proxy.State == requesterapi.StateBound {
			s.violated("requester %s is killed with the connections of its clients", p.pod)
		}
		p.ends()
	})
}

// endsUnready is what the kubelet says of a Pod that it ends, and that is not ready.
func endsUnready(p *corev1.Pod) {
	saysNothingOfReady(p)
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodFailed"})
}

// saysNothingOfReady is what the simulated kubelet says of all other Pods.
func saysNothingOfReady(p *corev1.Pod) {
	p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
}

// deletedWhileItServes has a requester deleted that serves.
var deletedWhileItServes = []simEvent{{at: 3 * time.Second, what: "create"}, {at: 20 * time.Second, what: "delete"}}

// withoutService is a script in which requesters are endpoints of no Service whose slices the
// controller keeps, for which they would wait.
func withoutService(script []simEvent) []simEvent {
	return append([]simEvent{{what: "no service"}}, script...)
}

func TestDeletedRequesterServesUntilItsEndpointsHaveHadTheirTime(t *testing.T) {
	several(t, deletedWhileItServes)
	several(t, append(slices.Clone(deletedWhileItServes), simEvent{at: 20300 * time.Millisecond, what: "kill controller"}))
}

func TestUnbindingAtTheDeletionIsFound(t *testing.T) {
	without := decide.Without(decide.Tables, "leaving, still serving")
	assert.True(t, slices.ContainsFunc(seedsOfComposed, func(seed uint64) bool {
		return len(simulate(t, seed, withoutService(deletedWhileItServes), without, false).wrong) > 0
	}))
}

// endedWhileItServes has the kubelet end a requester that serves.
func endedWhileItServes(why uint64) []simEvent {
	return []simEvent{{at: 3 * time.Second, what: "create", arg: 8}, {at: 20 * time.Second, what: "end by kubelet", arg: 8 * why}}
}

func TestRequesterThatTheKubeletEndsServesUntilItsEndpointsHaveHadTheirTime(t *testing.T) {
	for why := range uint64(simEnds) {
		several(t, endedWhileItServes(why))
		several(t, append(endedWhileItServes(why), simEvent{at: 21 * time.Second, what: "kill controller"}))
	}
}

func TestRequesterIsUnboundWhileItsProgramRunsPastItsDeadline(t *testing.T) {
	for _, seed := range seedsOfComposed {
		out := simulate(t, seed, endedWhileItServes(simDeadline), decide.Tables, false)
		assert.Empty(t, out.wrong, "seed %d", seed)
		assert.True(t, out.decided["ended, shown"] && out.decided["unbinding, carries"], "seed %d", seed)
	}
}

func TestUnbindingAtSIGTERMIsFound(t *testing.T) {
	without := decide.Without(decide.Tables, "leaving, still serving")
	for why := range uint64(simEnds) {
		assert.True(t, slices.ContainsFunc(seedsOfComposed, func(seed uint64) bool {
			return len(simulate(t, seed, withoutService(endedWhileItServes(why)), without, false).wrong) > 0
		}))
	}
}

// endsAndForgets has the kubelet begin to end a requester and be started again meanwhile. It
// does not know then that it was to evict the Pod: it starts a container again that has ended,
// and says no longer that it ends the Pod.
func (s *sim) endsAndForgets(pod *corev1.Pod, p *simProgram, ended bool) {
	s.note("the kubelet ends %s, and forgets it", pod.Name)
	s.api.changeThis(pod, endsUnready)
	if ended {
		s.restartProgram(p, s.between("program starts again", time.Millisecond, time.Second))
	}
	s.after(s.between("kubelet starts again", time.Millisecond, 10*time.Second), func() {
		if now := s.api.pods[pod.Name]; now != nil && now.UID == pod.UID {
			s.api.changeThis(pod, saysNothingOfReady)
		}
	})
}

// endedForAWhile has the kubelet end a requester that serves, and forget it.
func endedForAWhile(ended uint64) []simEvent {
	return []simEvent{{at: 3 * time.Second, what: "create", arg: 8}, {at: 20 * time.Second, what: "end and forget", arg: 8 * ended}}
}

func TestRequesterThatTheKubeletEndsNoMoreIsServedAgain(t *testing.T) {
	for ended := range uint64(2) {
		retracted := false
		for seed := range uint64(12) {
			out := simulate(t, seed, endedForAWhile(ended), decide.Tables, false)
			assert.Empty(t, out.wrong, "seed %d", seed)
			assert.Equal(t, 1, out.served, "seed %d", seed)
			retracted = retracted || out.decided["ended, shown"]
		}
		assert.True(t, retracted, "it was not shown while the kubelet ended it")
	}
}
