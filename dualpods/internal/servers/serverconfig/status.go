package serverconfig

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/launcherpool"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Bounds of what a status says, in bytes.
const (
	maxNodes   = 256
	maxMessage = 4096
)

// finding is what is known of an InferenceServerConfig.
type finding struct {
	generation     int64
	problems       []podmeta.Problem
	namespace      string
	launcherConfig string
	there          bool // the LauncherConfig
	launchers      int  // that have its name
	requesters     []*corev1.Pod
	asleep         map[string]int // instances by node
}

// tell puts the finding in a status.
func (f *finding) tell(s *v1alpha1.InferenceServerConfigStatus) {
	s.ObservedGeneration = f.generation
	s.Requesters, s.Ready, s.Asleep = 0, 0, 0
	var waits *corev1.Pod // the first, by name, that is not ready
	for _, pod := range f.requesters {
		if dualpods.RequesterOf(pod).Leaves(false) {
			continue
		}
		s.Requesters++
		if podmeta.Ready(pod) {
			s.Ready++
		} else if waits == nil || pod.Name < waits.Name {
			waits = pod
		}
	}
	for _, n := range f.asleep {
		s.Asleep += int32(n)
	}
	s.SleepsOn = launcherpool.Listed(slices.Sorted(maps.Keys(f.asleep)), maxNodes)
	meta.SetStatusCondition(&s.Conditions, f.accepted())
	meta.SetStatusCondition(&s.Conditions, f.available(s, waits))
}

func (f *finding) accepted() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, ObservedGeneration: f.generation}
	switch {
	case len(f.problems) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonInvalid
		c.Message = dualpods.Truncate(podmeta.Join(f.problems), maxMessage)
	case !f.there && f.launchers == 0: // launchers that were made by hand need no LauncherConfig
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonLauncherConfigMissing
		c.Message = fmt.Sprintf("spec.launcherConfigName: there is no LauncherConfig %s in namespace %s: create it, or name another one", f.launcherConfig, f.namespace)
	}
	return c
}

func (f *finding) available(s *v1alpha1.InferenceServerConfigStatus, waits *corev1.Pod) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllReady, ObservedGeneration: f.generation}
	switch {
	case s.Requesters == 0:
		c.Reason, c.Message = v1alpha1.ReasonNoneNeeded, "no Pod asks for it"
	case waits != nil:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonNotReady
		c.Message = dualpods.Truncate(fmt.Sprintf("%d of %d Pods are ready; %s %s", s.Ready, s.Requesters, waits.Name, WhyNotReady(waits)), maxMessage)
	}
	return c
}

// WhyNotReady says, as in "POD is starting", what a Pod that is not ready waits for.
func WhyNotReady(pod *corev1.Pod) string {
	if why, _ := podmeta.Waits(pod); why != "" {
		return why
	}
	if told := podmeta.ReadStatus(pod); told.State != "" {
		return "is " + strings.ToLower(told.State) + ": " + cmp.Or(told.Message, "instance "+told.Instance+" on launcher "+told.Launcher)
	}
	return "is starting"
}
