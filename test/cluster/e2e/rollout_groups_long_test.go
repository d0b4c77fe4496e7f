//go:build cluster && clusterlong

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// plainGate is the readiness gate of the plain Pods of stages: they are ready once the test says so.
const (
	plainGate    = "example.com/ready"
	plainVersion = "example.com/version"
)

// plainRole is a role of plain Pods of a version, which ask for no GPU.
func plainRole(t *testing.T, name, version string, replicas int32) v1alpha1.ServingRole {
	t.Helper()
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{plainVersion: version}}}
	template.Spec.TerminationGracePeriodSeconds = new(int64(0))
	template.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: plainGate}}
	template.Spec.Containers = []corev1.Container{{Name: "main", Image: "hotseat.local/requester:dev", ImagePullPolicy: corev1.PullNever, Args: []string{"wait"}}}
	return v1alpha1.ServingRole{Name: name, Replicas: &replicas, EntryTemplate: raw(t, template)}
}

// stages follows the Pods of llama. It has them become ready, and records which groups lack a pair: a ready
// prefill and a ready decode Pod of one revision.
type stages struct {
	s      *site
	mu     sync.Mutex
	pods   map[types.UID]*corev1.Pod
	held   map[string]bool // groups, versions and Pods that do not become ready
	had    map[string]bool // groups that have had a pair since the record began
	lacked []string        // the groups that lacked one since, one after the other
	came   []string        // Pods that were created since, in order
	gone   []string        // Pods that went since, in order
	wrong  []string
}

// holds reports whether a Pod is not to become ready.
func (r *stages) holds(pod *corev1.Pod) bool {
	return r.held[pod.Labels[podmeta.LabelServingGroup]] || r.held[pod.Labels[plainVersion]] || r.held[pod.Name]
}

// tell notes a version of a Pod, and has the Pod become ready or unready.
func (r *stages) tell(pod *corev1.Pod, gone bool) {
	r.mu.Lock()
	_, known := r.pods[pod.UID]
	switch {
	case gone:
		delete(r.pods, pod.UID)
		r.gone = append(r.gone, pod.Name)
	case !known:
		r.came = append(r.came, pod.Name)
		fallthrough
	default:
		r.pods[pod.UID] = pod
	}
	r.record()
	want := corev1.ConditionTrue
	if r.holds(pod) {
		want = corev1.ConditionFalse
	}
	r.mu.Unlock()
	if !gone {
		r.say(pod, want)
	}
}

// say sets the readiness gate of a Pod.
func (r *stages) say(pod *corev1.Pod, want corev1.ConditionStatus) {
	for _, c := range pod.Status.Conditions {
		if c.Type == plainGate && c.Status == want {
			return
		}
	}
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q}]}}`, plainGate, want)
	err := r.s.api.Status().Patch(context.Background(), pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(patch)))
	if err != nil && !apierrors.IsNotFound(err) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.wrong = append(r.wrong, err.Error())
	}
}

// record notes which groups lack a pair now, of those that have had one and are not held.
func (r *stages) record() {
	ready, revisions := map[string]map[string]bool{}, map[string]map[string]bool{}
	for _, pod := range r.pods {
		if !pod.DeletionTimestamp.IsZero() {
			continue
		}
		group, revision := pod.Labels[podmeta.LabelServingGroup], pod.Labels[podmeta.LabelServingRevision]
		if revisions[group] == nil {
			revisions[group], ready[group] = map[string]bool{}, map[string]bool{}
		}
		revisions[group][revision] = true
		if readyPod(pod) {
			ready[group][revision+" "+pod.Labels[podmeta.LabelServingRole]] = true
		}
	}
	pairs := map[string]int{}
	for group, all := range revisions {
		for revision := range all {
			if ready[group][revision+" prefill"] && ready[group][revision+" decode"] {
				pairs[group]++
			}
		}
		if pairs[group] > 1 {
			r.wrong = append(r.wrong, fmt.Sprintf("group %s has pairs of %d revisions", group, pairs[group]))
		}
		r.had[group] = r.had[group] || pairs[group] > 0
	}
	var lack []string
	for _, group := range slices.Sorted(maps.Keys(r.had)) {
		if r.had[group] && pairs[group] == 0 && !r.held[group] {
			lack = append(lack, group)
		}
	}
	if says := strings.Join(lack, " "); len(r.lacked) == 0 || r.lacked[len(r.lacked)-1] != says {
		r.lacked = append(r.lacked, says)
	}
}

// begin starts a new record. The Pods of what is held become unready, and stay so.
func (r *stages) begin(held ...string) {
	r.s.t.Helper()
	r.mu.Lock()
	r.held = map[string]bool{}
	for _, what := range held {
		r.held[what] = true
	}
	want := map[*corev1.Pod]corev1.ConditionStatus{}
	for _, pod := range r.pods {
		if want[pod] = corev1.ConditionTrue; r.holds(pod) {
			want[pod] = corev1.ConditionFalse
		}
	}
	r.mu.Unlock()
	for pod, status := range want {
		r.say(pod, status)
	}
	r.s.eventually("the Pods are as they should be", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, pod := range r.pods {
			if readyPod(pod) == r.holds(pod) {
				return false
			}
		}
		r.had, r.lacked, r.came, r.gone = map[string]bool{}, nil, nil, nil
		r.record()
		return true
	})
}

// of returns the groups of the Pods whose names end so, in the order of the Pods.
func of(names []string, suffix string) (groups []string) {
	for _, name := range names {
		if group, ok := strings.CutSuffix(name, suffix); ok {
			groups = append(groups, group)
		}
	}
	return groups
}

// versions waits until each group has Pods of its version alone, and all Pods that are not held are ready.
func (r *stages) versions(want ...string) {
	r.s.t.Helper()
	r.s.eventually("the groups have the versions "+strings.Join(want, " "), func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		has := map[string]string{}
		for _, pod := range r.pods {
			group, version := pod.Labels[podmeta.LabelServingGroup], pod.Labels[plainVersion]
			if before, ok := has[group]; !pod.DeletionTimestamp.IsZero() || readyPod(pod) == r.holds(pod) || ok && before != version {
				return false
			}
			has[group] = version
		}
		for ordinal, version := range want {
			if has[fmt.Sprintf("llama-%d", ordinal)] != version {
				return false
			}
		}
		return len(has) == len(want)
	})
}

// seen returns the record.
func (r *stages) seen() (lacked, came, gone []string) {
	r.s.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Empty(r.s.t, r.wrong)
	return slices.Clone(r.lacked), slices.Clone(r.came), slices.Clone(r.gone)
}

// TestFourGroupsAreRolledOutAndScaledOneAfterTheOther follows four groups of plain Pods through rollouts and
// changes of their numbers.
func TestFourGroupsAreRolledOutAndScaledOneAfterTheOther(t *testing.T) {
	s := newBareSite(t)
	serving := &v1alpha1.ModelServing{}
	serving.Namespace, serving.Name = s.ns, "llama"
	serving.Spec.Replicas, serving.Spec.RecoveryPolicy = new(int32(2)), v1alpha1.RecoverNone // Pods that are not ready stay so
	serving.Spec.Template.Roles = []v1alpha1.ServingRole{plainRole(t, "prefill", "one", 1), plainRole(t, "decode", "one", 1)}
	r := &stages{s: s, pods: map[types.UID]*corev1.Pod{}, held: map[string]bool{}, had: map[string]bool{}}
	stop := s.followAll(r.tell, client.MatchingLabels{podmeta.LabelServing: "llama"})
	defer stop()
	require.NoError(t, s.api.Create(t.Context(), serving))
	s.runs("llama", 2)

	// Two groups more, which come at once; the first two stay.
	r.begin()
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.Replicas = new(int32(4)) })
	s.runs("llama", 4)
	r.versions("one", "one", "one", "one")
	lacked, _, gone := r.seen()
	assert.Equal(t, []string{""}, lacked)
	assert.Empty(t, gone)

	// A rollout: never two groups at a time, and one pair in each of the others at every moment.
	to := func(version string, decode int32, partition int) {
		s.changeServing(func(spec *v1alpha1.ModelServingSpec) {
			spec.Template.Roles = []v1alpha1.ServingRole{plainRole(t, "prefill", version, 1), plainRole(t, "decode", version, decode)}
			spec.RolloutStrategy.RollingUpdateConfiguration.Partition = new(intstr.FromInt(partition))
		})
	}
	one := []string{"", "llama-3", "", "llama-2", "", "llama-1", "", "llama-0", ""}
	r.begin()
	to("two", 1, 0)
	r.versions("two", "two", "two", "two")
	lacked, _, _ = r.seen()
	assert.Equal(t, one, lacked)

	// A version that never becomes ready stops at the highest group. A second update in the middle, by another
	// controller, goes on there.
	r.begin("three")
	to("three", 1, 0)
	r.versions("two", "two", "two", "three")
	s.stays("the other groups keep theirs", func() bool {
		groups := s.modelServing("llama").Status.Groups
		lacked, _, _ = r.seen()
		return groups[3].BeingUpdated && !groups[2].BeingUpdated && slices.Equal(lacked, []string{"", "llama-3"})
	})
	s.killController(s.controller())
	to("four", 1, 0)
	r.versions("four", "four", "four", "four")
	lacked, _, _ = r.seen()
	assert.Equal(t, one, lacked)
	s.runs("llama", 4)

	// Two groups do not run: the one that is kept stays, the other one is updated at once. None of them holds
	// up the others. More replicas in the same edit come to the new template alone.
	r.begin("llama-0", "llama-1")
	s.eventually("the groups do not run", func() bool { return s.modelServing("llama").Status.ReadyReplicas == 2 })
	to("five", 2, 1)
	r.versions("four", "five", "five", "five")
	lacked, came, gone := r.seen()
	assert.Equal(t, []string{"", "llama-3", "", "llama-2", ""}, lacked)
	assert.Equal(t, []string{"llama-1", "llama-3"}, slices.Sorted(slices.Values(of(gone, "-prefill-0-0")[:2])), "both go at once")
	assert.ElementsMatch(t, []string{"llama-1", "llama-2", "llama-3"}, of(came, "-decode-1-0"))
	r.begin()
	to("five", 2, 0)
	r.versions("five", "five", "five", "five")
	revision := s.runs("llama", 4).Status.Revision

	// A role gets more replicas, and fewer: the highest group is the first one. In each group, the
	// replica goes that is not ready, or is the cheapest one, or has the highest number.
	decode := func(n int32) {
		s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.Template.Roles[1].Replicas = &n })
	}
	r.begin()
	decode(3)
	highest := []string{"llama-3", "llama-2", "llama-1", "llama-0"}
	s.eventually("all have three", func() bool { _, came, _ = r.seen(); return len(of(came, "-decode-2-0")) == 4 })
	assert.Equal(t, highest, of(came, "-decode-2-0"))
	s.runs("llama", 4)
	s.kubectl("annotate", "pod/llama-2-decode-1-0", corev1.PodDeletionCost+"=-1")
	s.kubectl("patch", "pod/llama-3-decode-0-0", "--type=merge", "-p", `{"spec":{"activeDeadlineSeconds":1}}`)
	s.eventually("a Pod has ended, and is kept", func() bool { return s.pod("llama-3-decode-0-0").Status.Phase == corev1.PodFailed })
	r.begin("llama-3-decode-0-0")
	decode(2)
	s.settles([]string{
		"llama-0-decode-0-0", "llama-0-decode-1-0", "llama-0-prefill-0-0", "llama-1-decode-0-0", "llama-1-decode-1-0", "llama-1-prefill-0-0",
		"llama-2-decode-0-0", "llama-2-decode-2-0", "llama-2-prefill-0-0", "llama-3-decode-1-0", "llama-3-decode-2-0", "llama-3-prefill-0-0",
	}, nothing)
	_, _, gone = r.seen()
	assert.Equal(t, []string{"llama-3-decode-0-0", "llama-2-decode-1-0", "llama-1-decode-2-0", "llama-0-decode-2-0"}, gone)
	assert.Equal(t, revision, s.modelServing("llama").Status.Revision)

	// Two groups go, the highest first.
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.Replicas = new(int32(2)) })
	s.runs("llama", 2)
	s.eventually("their Pods are gone", func() bool { _, _, gone = r.seen(); return len(gone) == 10 })
	assert.ElementsMatch(t, []string{"llama-3-decode-1-0", "llama-3-decode-2-0", "llama-3-prefill-0-0"}, gone[4:7])
}
