package binding

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

// becomesUnready has somebody else than the controller tell a requester program that it
// is not ready. Only the kubelet's probes tell of that.
func (p *simProgram) becomesUnready() {
	p.proxy.Ready = false
	p.s.note("somebody makes %s unready", p.pod)
	if !p.probed {
		p.probed = true
		p.s.after(p.s.between("first probe", time.Millisecond, probePeriod), p.probe)
	}
}

// probePeriod is Kubernetes' default of periodSeconds.
const probePeriod = 10 * time.Second

// probe is one of the kubelet's. It writes the Pod's status only if the answer is another
// than the one before. The simulated kubelet probes a program from the time that somebody
// makes it unready until it is found ready again.
func (p *simProgram) probe() {
	pod := p.there()
	if p.dead || pod == nil || podmeta.Finished(pod) {
		return
	}
	passes := p.up && p.proxy.Ready
	if passes != foundUnready(pod).IsZero() {
		p.s.note("the kubelet finds that %s is ready: %t", p.pod, passes)
		p.s.api.changeThis(pod, func(o *corev1.Pod) {
			o.Status.Conditions = slices.DeleteFunc(o.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.ContainersReady })
			status := corev1.ConditionTrue
			if !passes {
				status = corev1.ConditionFalse
			}
			o.Status.Conditions = append(o.Status.Conditions, corev1.PodCondition{Type: corev1.ContainersReady, Status: status, LastTransitionTime: metav1.Now()})
		})
	}
	if p.probed = !passes; p.probed {
		p.s.after(probePeriod, p.probe)
	}
}

// madeUnready has somebody make programs unready in some scripts.
func (s *sim) madeUnready(script []simEvent) []simEvent {
	if !s.chance("made unready", 10) {
		return script
	}
	at := s.between("made unready at", 0, script[len(script)-1].at)
	for range 1 + s.draw("made unready times", 5) {
		script = append(script, simEvent{at, "unready by hand", s.draw("made unready arg", 1<<20)})
		at += s.between("made unready again", time.Millisecond, probePeriod)
	}
	return inOrder(script)
}

// unreadyAgain has somebody make a requester program unready that is served, and again
// after the controller has made it ready and before the kubelet probes again: the first
// probe is at most 10 s after the first time, the second one 10 s after that.
var unreadyAgain = []simEvent{
	{at: 3 * time.Second, what: "create"},
	{at: 30 * time.Second, what: "unready by hand"},
	{at: 40100 * time.Millisecond, what: "unready by hand"},
}

func TestRequesterMadeUnreadyBetweenTwoProbesBecomesReadyAgain(t *testing.T) {
	for _, seed := range seedsOfComposed {
		out := simulate(t, seed, unreadyAgain, decide.Tables, false)
		assert.Empty(t, out.wrong, "seed %d", seed)
		assert.Equal(t, 1, out.served, "seed %d", seed)
	}
}
