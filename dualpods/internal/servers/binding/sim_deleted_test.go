package binding

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

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
	p.proxy.Terminating = true
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

// unbinds looks at a program that is unbound: while proxies may lead clients to a deleted
// requester whose model is awake, it refuses none.
func (s *sim) unbinds(p *simProgram) {
	pod, at := s.api.pods[p.pod], s.recordOf(p.uid)
	if pod == nil || pod.UID != p.uid || pod.DeletionTimestamp == nil || time.Until(pod.DeletionTimestamp.Time) < killMargin+2*detection {
		return
	}
	if at < 0 || s.unreadable(s.records()[at]) || !sameSet(s.records()[at].GPUs, p.said()) || p.odd != "" || s.api.nodes[p.node] == nil {
		return
	}
	_, i := p.target()
	serves := p.proxy.Ready || time.Until(p.delayed) > justNow
	if serves && awake(i) && time.Since(i.awake) > detection {
		s.violated("deleted requester %s is unbound, and proxies may still lead clients to it", p.pod)
	}
}

// deletedWhileItServes has a requester deleted that serves.
var deletedWhileItServes = []simEvent{{at: 3 * time.Second, what: "create"}, {at: 20 * time.Second, what: "delete"}}

func TestDeletedRequesterServesUntilItsEndpointsHaveHadTheirTime(t *testing.T) {
	several(t, deletedWhileItServes)
	several(t, append(slices.Clone(deletedWhileItServes), simEvent{at: 20300 * time.Millisecond, what: "kill controller"}))
}

func TestUnbindingAtTheDeletionIsFound(t *testing.T) {
	at := slices.IndexFunc(rules, func(r rule) bool { return r.name == "leaving, still serving" })
	require.NotEqual(t, -1, at)
	without := slices.Delete(slices.Clone(rules), at, at+1)
	assert.True(t, slices.ContainsFunc(seedsOfComposed, func(seed uint64) bool {
		return len(simulate(t, seed, deletedWhileItServes, without, false).wrong) > 0
	}))
}
