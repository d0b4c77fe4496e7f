package binding

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

// simLabel is the label of a node that the LauncherConfigs select.
const simLabel = "pool"

func isSelected(node *corev1.Node) bool { return node != nil && node.Labels[simLabel] != "" }

// selects says that the LauncherConfigs select a node.
func (s *sim) selects(node string) bool { return isSelected(s.api.nodes[node]) }

// label gives a node the label, or takes it off.
func (s *sim) label(name string, on bool) {
	node := s.api.nodes[name]
	if node == nil || isSelected(node) == on {
		return
	}
	node = node.DeepCopy()
	node.Labels = nil
	s.unselected[name] = time.Now()
	if on {
		node.Labels = map[string]string{simLabel: "yes"}
		delete(s.unselected, name)
		s.after(s.between("daemonset", 50*time.Millisecond, time.Second), func() { s.addLauncher(name, "each") })
	}
	s.note("node %s is selected: %v", name, on)
	s.api.putNode(node)
	s.endUnselected(name)
}

// endUnselected deletes the launchers of a node that is not selected any more, as those do
// that make launchers: a bound one stays, because admission refuses its deletion.
func (s *sim) endUnselected(node string) {
	if s.api.nodes[node] == nil || s.selects(node) {
		return
	}
	for _, name := range sortedKeys(s.api.pods) {
		pod := s.api.pods[name]
		if !simIsLauncher(pod) || pod.Spec.NodeName != node || pod.DeletionTimestamp != nil {
			continue
		}
		if bindings, damaged := podmeta.ReadBindings(pod); len(bindings)+len(damaged) == 0 {
			s.disturb(5 * time.Second)
			s.api.deletePod(name, 30)
		}
	}
}

// launcherChanged has those that make launchers look at one that has changed.
func (s *sim) launcherChanged(pod *corev1.Pod) {
	if node := pod.Spec.NodeName; simIsLauncher(pod) && s.api.nodes[node] != nil && !s.selects(node) {
		s.after(s.between("unselected", 10*time.Millisecond, 500*time.Millisecond), func() { s.endUnselected(node) })
	}
}

// longUnselected is after what time no pass is under way any more that began before a
// controller knew that a node is not selected.
const longUnselected = 5 * time.Second

// bindsOn looks at a launcher that gets the record of a requester which it has not had: a
// launcher on a node that is not selected any more gets none.
func (s *sim) bindsOn(inc *incarnation, pod *corev1.Pod) {
	since, lost := s.unselected[pod.Spec.NodeName]
	if lost && !isSelected(inc.cache.nodes[pod.Spec.NodeName]) && time.Since(since) > longUnselected {
		s.violated("a requester is bound to launcher %s, whose node is not selected any more", pod.Name)
	}
}

// notSelected is what the pool says of a node that is not selected, as a process knows it;
// nil: it is.
func (p *simPool) notSelected(need dualpods.LauncherNeed) (wait *dualpods.LauncherWait) {
	p.inc.s.locked(func() {
		if node := p.inc.cache.nodes[need.Node]; node != nil && !isSelected(node) {
			wait = &dualpods.LauncherWait{Missing: true, Stuck: true, Why: fmt.Sprintf("node %s gets no launcher of LauncherConfig %s", need.Node, need.Config)}
		}
	})
	return wait
}

// boundAndNotSelected has a node lose its label while a requester is served on it, and
// requesters come after that.
var boundAndNotSelected = []simEvent{
	{at: 3 * time.Second, what: "create", arg: 8}, {at: 20 * time.Second, what: "unselect"},
	{at: 30 * time.Second, what: "create", arg: 9}, {at: 40 * time.Second, what: "create on demand"},
}

func TestNewRequesterIsNotBoundOnANodeThatIsNotSelectedAnyMore(t *testing.T) {
	for _, seed := range seedsOfComposed {
		out := simulate(t, seed, boundAndNotSelected, decide.Tables, false)
		assert.Empty(t, out.wrong, "seed %d", seed)
		assert.Equal(t, 3, out.served, "once the node is selected again, all are served")
	}
	several(t, append(slices.Clone(boundAndNotSelected), simEvent{at: 50 * time.Second, what: "delete"}, simEvent{at: 60 * time.Second, what: "create", arg: 10}))
}
