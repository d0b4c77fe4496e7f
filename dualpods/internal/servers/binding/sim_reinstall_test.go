package binding

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestLauncherWithARecordGetsItsFinalizerBackAfterAReinstallation(t *testing.T) {
	out := simulate(t, 1, []simEvent{{at: 3 * time.Second, what: "create"}, {at: 20 * time.Second, what: "reinstall"}}, decide.Tables, false)
	assert.Empty(t, out.wrong)
	assert.Equal(t, 1, out.served)
}

// reinstalled has the chart be uninstalled and installed again in some scripts.
func (s *sim) reinstalled(script []simEvent) []simEvent {
	if !s.chance("reinstalled", 4) {
		return script
	}
	last := script[len(script)-1].at
	script = append(script, simEvent{at: s.between("reinstalled at", 0, last+time.Second), what: "reinstall"})
	if s.chance("stubborn", 30) { // a program serves on whatever it is told, and its model sleeps
		at := s.between("stubborn at", 0, last)
		script = append(script, simEvent{at: at, what: oddStays}, simEvent{at: at + s.between("asleep", time.Millisecond, 5*time.Second), what: "sleep by hand", arg: s.draw("arg", 1<<20)})
	}
	return inOrder(script)
}

// reinstall has an uninstallation end the controller and take our finalizers off all
// Pods. A controller that is installed afterwards begins as after a kill. A requester whose
// input somebody has taken as well would be a Pod like any other then; nobody does both here.
func (s *sim) reinstall() {
	s.inc.kill()
	if s.unheld == nil {
		s.unheld = map[types.UID]bool{}
	}
	ours := func(f string) bool { return f == podmeta.FinalizerRequester || f == podmeta.FinalizerProvider }
	for _, name := range sortedKeys(s.api.pods) {
		pod := s.api.pods[name]
		if pod == nil || !slices.ContainsFunc(pod.Finalizers, ours) {
			continue
		}
		unheld := pod.DeepCopy()
		unheld.Finalizers = slices.DeleteFunc(unheld.Finalizers, ours)
		if podmeta.Held(pod) && !podmeta.IsRequester(unheld) {
			continue
		}
		s.unheld[pod.UID] = true
		s.api.changePod(name, func(p *corev1.Pod) { p.Finalizers = unheld.Finalizers })
	}
}
