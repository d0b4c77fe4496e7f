package form

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

// ofLeaderWorkerSet makes a requester Pod w of the group lead-0 of a LeaderWorkerSet, with the
// variables that its webhook v0.9.0 gives for a subgroup with a single host.
func ofLeaderWorkerSet(t *testing.T, w, size, of, label int, leaderAsks bool) *corev1.Pod {
	pod := requester(t)
	pod.Name, pod.Spec.Subdomain = "lead-0", "lead"
	pod.Labels[podmeta.LabelLWSName], pod.Labels[podmeta.LabelLWSWorkerIndex], pod.Labels[podmeta.LabelSubgroupIndex] = "lead", strconv.Itoa(w), strconv.Itoa(label)
	pod.Annotations[podmeta.AnnotationLWSSize], pod.Annotations[podmeta.AnnotationSubgroupSize] = strconv.Itoa(size), strconv.Itoa(of)
	if w > 0 {
		pod.Name = fmt.Sprintf("lead-0-%d", w)
		pod.Annotations[podmeta.AnnotationLWSLeaderName] = "lead-0"
		if leaderAsks {
			pod.Annotations[podmeta.AnnotationLWSLeaderTPUs] = "true"
		}
	}
	for name, value := range map[string]string{
		podmeta.EnvTPUWorkerID: "-1", podmeta.EnvTPUWorkerHostnames: "theirs", podmeta.EnvTPUProcessAddresses: "theirs:8476", podmeta.EnvTPUProcessPort: "8476", "TPU_NAME": "lead-0",
	} {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: name, Value: value})
	}
	return pod
}

// TestTPUVariablesFollowTheLabelOfTheSubgroup has for each Pod the ID and the hosts.
func TestTPUVariablesFollowTheLabelOfTheSubgroup(t *testing.T) {
	const patch = `spec: {containers: [{name: inference-server, image: vllm:1, command: [vllm, serve, m, $(TPU_WORKER_ID)]}]}`
	for name, c := range map[string]struct {
		w, size, of, label int
		asks               bool
		id                 string
		hosts              []int
	}{
		"the leader, to which the webhook gives -1":   {0, 4, 2, 0, true, "0", []int{0, 1}},
		"a worker beside it":                          {1, 4, 2, 0, true, "1", []int{0, 1}},
		"a worker of the second subgroup":             {3, 4, 2, 1, true, "1", []int{2, 3}},
		"the leader comes on top":                     {2, 5, 2, 0, true, "2", []int{0, 1, 2}},
		"a worker after a leader that comes on top":   {3, 5, 2, 1, true, "0", []int{3, 4}},
		"a CPU leader takes a place by the label":     {4, 8, 4, 1, false, "0", []int{4, 5, 6, 7}},
		"a CPU leader is no host":                     {3, 8, 4, 0, false, "2", []int{1, 2, 3}},
		"subgroups of one, beside a CPU leader":       {2, 3, 1, 1, false, "0", []int{2}},
		"a worker of the last subgroup, size 11 of 5": {7, 11, 5, 1, false, "1", []int{6, 7, 8, 9, 10}},
	} {
		form, problems := FromPatch(ofLeaderWorkerSet(t, c.w, c.size, c.of, c.label, c.asks), patch)
		require.Empty(t, problems, name)
		var hosts, processes []string
		for _, w := range c.hosts {
			host := "lead-0.lead"
			if w > 0 {
				host = fmt.Sprintf("lead-0-%d.lead", w)
			}
			hosts, processes = append(hosts, host), append(processes, host+":8476")
		}
		assert.Equal(t, c.id, form.Env[podmeta.EnvTPUWorkerID], name)
		assert.Equal(t, []string{"m", c.id}, form.Args, name)
		assert.Equal(t, strings.Join(hosts, ","), form.Env[podmeta.EnvTPUWorkerHostnames], name)
		assert.Equal(t, strings.Join(processes, ","), form.Env[podmeta.EnvTPUProcessAddresses], name)
	}
}

func TestTPUVariablesOfOthersStay(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"no LeaderWorkerSet":          func(p *corev1.Pod) { delete(p.Labels, podmeta.LabelLWSName) },
		"no subgroups":                func(p *corev1.Pod) { delete(p.Annotations, podmeta.AnnotationSubgroupSize) },
		"a leader in no subgroup":     func(p *corev1.Pod) { delete(p.Labels, podmeta.LabelSubgroupIndex) },
		"a size that is no number":    func(p *corev1.Pod) { p.Annotations[podmeta.AnnotationLWSSize] = "x" },
		"a size of no group":          func(p *corev1.Pod) { p.Annotations[podmeta.AnnotationLWSSize] = strconv.Itoa(mostPods + 1) },
		"a subgroup of 0":             func(p *corev1.Pod) { p.Annotations[podmeta.AnnotationSubgroupSize] = "0" },
		"a label that others changed": func(p *corev1.Pod) { p.Labels[podmeta.LabelSubgroupIndex] = "7" },
		"variables of the template": func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: podmeta.EnvTPUWorkerID, Value: "-1"}, {Name: podmeta.EnvTPUWorkerHostnames, Value: "theirs"}}
		},
	} {
		pod := ofLeaderWorkerSet(t, 0, 4, 2, 0, true)
		change(pod)
		form, problems := FromPatch(pod, serving(`image: vllm:1, command: [vllm, serve, m]`))
		require.Empty(t, problems, name)
		assert.Equal(t, "-1", form.Env[podmeta.EnvTPUWorkerID], name)
		assert.Equal(t, "theirs", form.Env[podmeta.EnvTPUWorkerHostnames], name)
	}
}
