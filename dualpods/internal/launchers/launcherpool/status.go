package launcherpool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// conflictPause is when to look again after somebody else was faster.
const conflictPause = 100 * time.Millisecond

func accepted(config *v1alpha1.LauncherConfig) *metav1.Condition {
	return meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionAccepted)
}

// tell writes the status, where it has changed.
func (p *Pool) tell(ctx context.Context, f *finding) error {
	changed := f.config.DeepCopy()
	s := &changed.Status
	s.ObservedGeneration = f.config.Generation
	p.count(f, s)
	before := accepted(f.config)
	acceptance := metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, ObservedGeneration: f.config.Generation,
	}
	switch {
	case len(f.problems) > 0:
		acceptance.Status, acceptance.Reason, acceptance.Message = metav1.ConditionFalse, v1alpha1.ReasonMalformedTemplate, join(f.problems)
	case f.taken != "":
		acceptance.Status, acceptance.Reason, acceptance.Message = metav1.ConditionFalse, v1alpha1.ReasonNameTaken, f.taken
	}
	meta.SetStatusCondition(&s.Conditions, acceptance)
	meta.SetStatusCondition(&s.Conditions, available(f, s))
	meta.SetStatusCondition(&s.Conditions, allocationsChecked(f.config))
	if equality.Semantic.DeepEqual(changed.Status, f.config.Status) {
		return nil
	}
	if err := p.opts.API.Status().Update(ctx, changed); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot write the status of LauncherConfig %s: %w", client.ObjectKeyFromObject(f.config), err)
	}
	if acceptance.Status == metav1.ConditionFalse && (before == nil || before.Message != acceptance.Message) {
		p.opts.Recorder.Eventf(f.config, nil, corev1.EventTypeWarning, acceptance.Reason, "Accept", "%s", dualpods.Truncate(acceptance.Message, 1000))
	}
	return nil
}

// count counts launchers and what they have. Of one that does not answer, what
// it said last counts.
func (p *Pool) count(f *finding, s *v1alpha1.LauncherConfigStatus) {
	s.Launchers, s.Ready, s.Outdated, s.Awake, s.Asleep = 0, 0, 0, 0, 0
	nodes := map[string]bool{}
	var instances []v1alpha1.LauncherInstance
	for _, pod := range f.launchers {
		requesters := requestersOf(pod)
		for id, i := range p.opts.Views.View(string(pod.UID)).Instances {
			instances = append(instances, v1alpha1.LauncherInstance{
				Node: pod.Spec.NodeName, Name: id, State: i.State, Since: metav1.NewTime(i.StateSince).Rfc3339Copy(),
				Requester: requesters[id], GPUs: i.GPUUUIDs,
			})
			switch launcher.State(i.State) {
			case launcher.Awake:
				s.Awake++
			case launcher.Sleeping:
				s.Asleep++
				nodes[pod.Spec.NodeName] = true
			default: // neither: on its way, or ended
			}
		}
		if f.outdated(pod) {
			s.Outdated++
		}
		if !pod.DeletionTimestamp.IsZero() || podmeta.Finished(pod) {
			continue
		}
		s.Launchers++
		if podmeta.Ready(pod) {
			s.Ready++
		}
	}
	if f.set != nil && f.set.Status.ObservedGeneration == f.set.Generation {
		s.Launchers = f.set.Status.DesiredNumberScheduled
	}
	s.SleepsOn = Listed(slices.Sorted(maps.Keys(nodes)), 256)
	slices.SortFunc(instances, func(a, b v1alpha1.LauncherInstance) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Name, b.Name))
	})
	shown := min(len(instances), v1alpha1.MaxListedInstances)
	s.Instances, s.InstancesLeftOut = instances[:shown:shown], int32(len(instances)-shown)
}

// requestersOf names the requesters that are bound to a launcher, by instance.
func requestersOf(pod *corev1.Pod) map[string]string {
	bindings, _ := podmeta.ReadBindings(pod)
	names := make(map[string]string, len(bindings))
	for _, b := range bindings {
		names[b.Instance] = b.Name
	}
	return names
}

func available(f *finding, s *v1alpha1.LauncherConfigStatus) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllReady, ObservedGeneration: f.config.Generation}
	perNode := f.config.Spec.Population.Mode != v1alpha1.OnDemand
	switch {
	case f.failure != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonNotReady, dualpods.Truncate(f.failure, 1000)
	case s.Ready >= s.Launchers && s.Launchers > 0:
	case s.Launchers == 0 && !perNode:
		c.Reason, c.Message = v1alpha1.ReasonNoneNeeded, "no requester needs one yet"
	case s.Launchers == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonNoNodes, noNodes(f.template.Spec.NodeSelector)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonNotReady, fmt.Sprintf("%d of %d launchers are ready", s.Ready, s.Launchers)
		if first := waiting(f.launchers); first != nil {
			c.Message += fmt.Sprintf("; %s on node %s %s", first.Name, NodeOf(first), dualpods.Truncate(why(first), 500))
		}
	}
	return c
}

// noNodes says what no node has.
func noNodes(selector map[string]string) string {
	if len(selector) == 0 {
		return "no node is one on which spec.podTemplate lets its launchers be, as by its affinity"
	}
	return fmt.Sprintf("no node on which its launchers may be has the labels %s, which spec.population.nodeSelector and spec.podTemplate ask for: give them to nodes, or ask for others", labels.FormatLabels(selector))
}

func allocationsChecked(config *v1alpha1.LauncherConfig) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAllocationsChecked, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonKubeletAsked, ObservedGeneration: config.Generation}
	if config.Spec.AllocationCheck.Mode == v1alpha1.AllocationCheckNone {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonRequesterOnly
		c.Message = "spec.allocationCheck.mode is None: which GPUs a requester has is what its own program says"
	}
	return c
}

// waiting is the first, by name, that is not ready.
func waiting(launchers []*corev1.Pod) *corev1.Pod {
	var first *corev1.Pod
	for _, pod := range launchers {
		if pod.DeletionTimestamp.IsZero() && !podmeta.Ready(pod) && (first == nil || pod.Name < first.Name) {
			first = pod
		}
	}
	return first
}

// Listed puts names behind one another, as many as have room, which is in bytes.
func Listed(names []string, room int) string {
	text := strings.Join(names, ", ")
	for n := len(names) - 1; len(text) > room && n >= 0; n-- {
		text = fmt.Sprintf("%s and %d more", strings.Join(names[:n], ", "), len(names)-n)
	}
	return dualpods.Truncate(text, room)
}

func join(problems []podmeta.Problem) string {
	return dualpods.Truncate(podmeta.Join(problems), 4096)
}

// errOf makes problems one error.
func errOf(problems []podmeta.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return errors.New(join(problems))
}
