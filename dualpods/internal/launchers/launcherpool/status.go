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
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// conflictPause is the period until the next pass after a write conflict.
const conflictPause = 100 * time.Millisecond

func acceptedCondition(config *v1alpha1.LauncherConfig) *metav1.Condition {
	return meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionAccepted)
}

// updateStatus writes the status if it has changed.
func (p *Pool) updateStatus(ctx context.Context, f *observation) error {
	changed := f.config.DeepCopy()
	s := &changed.Status
	s.ObservedGeneration = f.config.Generation
	p.countLaunchers(f, s)
	before := acceptedCondition(f.config)
	acceptance := metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, ObservedGeneration: f.config.Generation,
	}
	switch {
	case len(f.problems) > 0:
		acceptance.Status, acceptance.Reason, acceptance.Message = metav1.ConditionFalse, v1alpha1.ReasonMalformedTemplate, joinProblems(f.problems)
	case f.nameTaken != "":
		acceptance.Status, acceptance.Reason, acceptance.Message = metav1.ConditionFalse, v1alpha1.ReasonNameTaken, f.nameTaken
	}
	meta.SetStatusCondition(&s.Conditions, acceptance)
	meta.SetStatusCondition(&s.Conditions, availableCondition(f, s))
	meta.SetStatusCondition(&s.Conditions, allocationsCheckedCondition(f.config))
	meta.SetStatusCondition(&s.Conditions, protectedCondition(f))
	if c, ok := upToDateCondition(f); ok {
		meta.SetStatusCondition(&s.Conditions, c)
	}
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

// countLaunchers counts the launchers and their instances. For a launcher that does not answer,
// its last answer counts.
func (p *Pool) countLaunchers(f *observation, s *v1alpha1.LauncherConfigStatus) {
	s.Launchers, s.Ready, s.Outdated, s.Requesters, s.Awake, s.Asleep = 0, 0, 0, 0, 0, 0
	nodes := map[string]bool{}
	var instances []v1alpha1.LauncherInstance
	for _, pod := range f.launchers {
		requesters := requestersOf(pod)
		s.Requesters += int32(records(pod))
		p.opts.Views.Pick(string(pod.UID), func(id string, i launcherapi.Instance) bool {
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
			default: // on its way to another state, or ended
			}
			return false
		})
		if f.outdated(pod) {
			s.Outdated++
		}
		provider := dualpods.ProviderOf(pod, 0)
		if provider.Stage == dualpods.Leaving || !f.counts(pod) {
			continue
		}
		s.Launchers++
		if provider.Ready {
			s.Ready++
		}
	}
	if f.daemonSetCounts() {
		s.Launchers = f.daemonSet.Status.DesiredNumberScheduled
	}
	s.SleepsOn = Listed(slices.Sorted(maps.Keys(nodes)), 256)
	slices.SortFunc(instances, func(a, b v1alpha1.LauncherInstance) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Name, b.Name))
	})
	shown := min(len(instances), v1alpha1.MaxListedInstances)
	s.Instances, s.InstancesLeftOut = instances[:shown:shown], int32(len(instances)-shown)
}

// daemonSetCounts reports whether the status of the DaemonSet says how many launchers there are
// to be.
func (f *observation) daemonSetCounts() bool {
	return f.daemonSet != nil && f.daemonSet.Status.ObservedGeneration == f.daemonSet.Generation
}

// counts reports whether a launcher is one of those that the number of launchers counts.
// DaemonSets leave out the nodes where they may not place Pods.
func (f *observation) counts(pod *corev1.Pod) bool {
	return !f.daemonSetCounts() || !f.uncounted[pod.UID]
}

// requestersOf returns the names of the requesters that are bound to a launcher, by
// instance.
func requestersOf(pod *corev1.Pod) map[string]string {
	bindings, _ := podmeta.ReadBindings(pod)
	names := make(map[string]string, len(bindings))
	for _, b := range bindings {
		names[b.Instance] = b.Name
	}
	return names
}

func availableCondition(f *observation, s *v1alpha1.LauncherConfigStatus) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllReady, ObservedGeneration: f.config.Generation}
	perNode := f.config.Spec.Population.Mode != v1alpha1.OnDemand
	switch {
	case f.failure != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonNotReady, dualpods.Truncate(f.failure, 1000)
	case f.refused != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonNotReady, dualpods.Truncate(f.refused, 1000)
	case s.Launchers == 0 && len(f.problems) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonMalformedTemplate, "no launcher is created: the condition Accepted says what to correct"
	case s.Ready >= s.Launchers && s.Launchers > 0:
	case s.Launchers == 0 && !perNode:
		c.Reason, c.Message = v1alpha1.ReasonNoneNeeded, "no requester needs a launcher yet"
	case s.Launchers == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonNoNodes, noNodesMessage(f.template.Spec.NodeSelector)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonNotReady, fmt.Sprintf("%d of %d launchers are ready", s.Ready, s.Launchers)
		if first := f.firstUnready(); first != nil {
			c.Message += fmt.Sprintf("; %s on node %s %s", first.Name, NodeOf(first), dualpods.Truncate(waitReason(first), 500))
		}
	}
	return c
}

// noNodesMessage returns the message for a selector that no node matches.
func noNodesMessage(selector map[string]string) string {
	if len(selector) == 0 {
		return "no node matches spec.podTemplate: check its affinity and its tolerations"
	}
	return fmt.Sprintf("no node that its launchers may run on has the labels %s, which spec.population.nodeSelector and spec.podTemplate ask for: label nodes, or ask for other labels", labels.FormatLabels(selector))
}

func allocationsCheckedCondition(config *v1alpha1.LauncherConfig) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAllocationsChecked, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonKubeletAsked, ObservedGeneration: config.Generation}
	if config.Spec.AllocationCheck.Mode == v1alpha1.AllocationCheckNone {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonRequesterOnly
		c.Message = "spec.allocationCheck.mode is None: the controller trusts what each requester reports about its GPUs"
		return c
	}
	if dir := config.Spec.AllocationCheck.KubeletDir; dir != "" && dir != v1alpha1.EarlierKubeletDir {
		c.Message = "spec.allocationCheck.kubeletDir is not used: the agents of nodes read the folder of the chart's value agent.kubeletDir; remove the field"
	}
	return c
}

// firstUnready returns the first launcher that counts, by name, that is not ready.
func (f *observation) firstUnready() *corev1.Pod {
	var first *corev1.Pod
	for _, pod := range f.launchers {
		if f.counts(pod) && pod.DeletionTimestamp.IsZero() && !podmeta.Ready(pod) && (first == nil || pod.Name < first.Name) {
			first = pod
		}
	}
	return first
}

// Listed joins names into a text of at most room bytes, and counts the names that have
// no room.
func Listed(names []string, room int) string {
	text := strings.Join(names, ", ")
	for n := len(names) - 1; len(text) > room && n >= 0; n-- {
		text = fmt.Sprintf("%s and %d more", strings.Join(names[:n], ", "), len(names)-n)
	}
	return dualpods.Truncate(text, room)
}

func joinProblems(problems []podmeta.Problem) string {
	return dualpods.Truncate(podmeta.Join(problems), 4096)
}

// problemsError returns problems as one error; nil when there are none.
func problemsError(problems []podmeta.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return errors.New(joinProblems(problems))
}
