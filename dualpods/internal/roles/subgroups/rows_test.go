package subgroups

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"hotseat.dev/hotseat/spec/podmeta"
)

// asking is the spec of a Pod that asks for a resource; empty: for none.
func asking(name corev1.ResourceName) *corev1.PodSpec {
	c := corev1.Container{Name: "main"}
	if name != "" {
		c.Resources.Limits = corev1.ResourceList{name: resource.MustParse("4")}
	}
	return &corev1.PodSpec{Containers: []corev1.Container{c}}
}

// group has an entry and workers of TPUs. entry is what the entry asks for.
func group(size int, entry corev1.ResourceName, policy *Policy) *Group {
	g := &Group{Namespace: "default", Entry: "my-lws-0", Pods: []*corev1.PodSpec{asking(entry)}, Policy: policy}
	for range size - 1 {
		g.Pods = append(g.Pods, asking(podmeta.ResourceTPU))
	}
	return g
}

const cpu corev1.ResourceName = ""

func host(w int) string { return "h" + strconv.Itoa(w) }

// hosts writes first to last as host makes them.
func hosts(first, last int) string {
	var all []string
	for w := first; w <= last; w++ {
		all = append(all, host(w))
	}
	return strings.Join(all, ",")
}

// the keys of the subgroups of my-lws-0, made by sha1sum
var keys = []string{
	"5deee8c4a097c2901d4bc8feeb358a6e7ef32eac", // my-lws-0/0
	"342acf7ff6f85b42bb1b926ba95b46e5f1d93839", // my-lws-0/1
	"d3cca57f62c99c1fe242736681559489eafcd47d", // my-lws-0/2
}

// none is the index of a Pod that is in no subgroup.
const none = -1

// member is what a Pod of a group is to have.
type member struct {
	w, index  int
	id, hosts string // empty: no TPU environment
}

func TestEachRowOfSubgroups(t *testing.T) {
	tpu, gpu := podmeta.ResourceTPU, podmeta.ResourceGPU
	for _, c := range []struct {
		row   string
		group *Group
		want  []member
	}{
		{"23: size 8, s 4, the entry asks", group(8, tpu, &Policy{Size: 4}), []member{
			{0, 0, "0", hosts(0, 3)}, {1, 0, "1", hosts(0, 3)}, {2, 0, "2", hosts(0, 3)}, {3, 0, "3", hosts(0, 3)},
			{4, 1, "0", hosts(4, 7)}, {5, 1, "1", hosts(4, 7)}, {6, 1, "2", hosts(4, 7)}, {7, 1, "3", hosts(4, 7)},
		}},
		{"23: the entry asks for GPUs", group(8, gpu, &Policy{Size: 4}), []member{
			{0, 0, "", ""}, {3, 0, "2", hosts(1, 3)}, {4, 1, "0", hosts(4, 7)}, {7, 1, "3", hosts(4, 7)},
		}},
		{"24: size 5, s 2, CPU entry", group(5, cpu, &Policy{Size: 2, Type: LeaderWorker}), []member{
			{0, 0, "", ""}, {1, 0, "0", hosts(1, 2)}, {2, 0, "1", hosts(1, 2)}, {3, 1, "0", hosts(3, 4)}, {4, 1, "1", hosts(3, 4)},
		}},
		{"24a: size 5, s 2, the entry asks", group(5, tpu, &Policy{Size: 2}), []member{
			{0, 0, "0", hosts(0, 2)}, {1, 0, "1", hosts(0, 2)}, {2, 0, "2", hosts(0, 2)}, {3, 1, "0", hosts(3, 4)}, {4, 1, "1", hosts(3, 4)},
		}},
		{"25: size 11, s 5, CPU entry, w7", group(11, cpu, &Policy{Size: 5}), []member{{7, 1, "1", hosts(6, 10)}}},
		{"26: size 8, s 4, CPU entry, w4", group(8, cpu, &Policy{Size: 4}), []member{
			{4, 0, "3", hosts(1, 4)}, {5, 1, "0", hosts(5, 7)}, {0, 0, "", ""},
		}},
		{"27: s 1, size 3, all ask", group(3, tpu, &Policy{Size: 1}), []member{
			{0, 0, "0", hosts(0, 0)}, {1, 1, "0", hosts(1, 1)}, {2, 2, "0", hosts(2, 2)},
		}},
		{"27a: s 1, CPU entry", group(3, cpu, &Policy{Size: 1}), []member{
			{0, 0, "", ""}, {1, 0, "0", hosts(1, 1)}, {2, 1, "0", hosts(2, 2)},
		}},
		{"30: s unset", group(3, tpu, nil), []member{{0, none, "", ""}, {1, none, "", ""}, {2, none, "", ""}}},
		{"31: the entry is excluded", group(5, tpu, &Policy{Size: 2, Type: LeaderExcluded}), []member{
			{0, none, "", ""}, {1, 0, "0", hosts(1, 2)}, {2, 0, "1", hosts(1, 2)}, {3, 1, "0", hosts(3, 4)}, {4, 1, "1", hosts(3, 4)},
		}},
		{"31: the entry is excluded, s 1", group(3, tpu, &Policy{Size: 1, Type: LeaderExcluded}), []member{
			{0, none, "", ""}, {1, 0, "0", hosts(1, 1)}, {2, 1, "0", hosts(2, 2)},
		}},
	} {
		t.Run(c.row, func(t *testing.T) {
			for _, m := range c.want {
				labels, env := map[string]string{}, map[string]string{}
				if m.index != none {
					labels = map[string]string{podmeta.LabelSubgroupIndex: strconv.Itoa(m.index), podmeta.LabelSubgroupKey: keys[m.index]}
				}
				if m.id != "" {
					env = map[string]string{
						"TPU_WORKER_ID": m.id, "TPU_WORKER_HOSTNAMES": m.hosts, "TPU_PROCESS_PORT": "8476",
						"TPU_PROCESS_ADDRESSES": strings.ReplaceAll(m.hosts, ",", ":8476,") + ":8476",
					}
				}
				assert.Equal(t, labels, c.group.Labels(m.w), "Pod %d", m.w)
				assert.Equal(t, env, values(c.group.TPUEnv(m.w, host)), "Pod %d", m.w)
			}
		})
	}
}

func values(env []corev1.EnvVar) map[string]string {
	m := map[string]string{}
	for _, e := range env {
		m[e.Name] = e.Value
	}
	return m
}

func TestPodWithoutSubgroupsGetsNothing(t *testing.T) {
	g := group(3, podmeta.ResourceTPU, nil)
	for w := range g.Pods {
		pod := &corev1.Pod{Spec: *asking(podmeta.ResourceTPU)}
		before := pod.DeepCopy()
		g.Apply(pod, w, "a", host)
		assert.Equal(t, before, pod, "row 30")
	}
}

func TestEachRowOfRefusedPolicies(t *testing.T) {
	const size = "spec.template.subGroupPolicy.subGroupSize: "
	const topology = "metadata.annotations[leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology]"
	for _, c := range []struct {
		row      string
		policy   *Policy
		topology Topology
		pods     int
		problem  string // empty: none
	}{
		{"23: accepted", &Policy{Size: 4}, Topology{Group: "topology.kubernetes.io/zone", Subgroup: "rack"}, 8, ""},
		{"24: accepted", &Policy{Size: 2}, Topology{}, 5, ""},
		{"30: accepted", nil, Topology{Group: "zone"}, 5, ""},
		{"31: accepted", &Policy{Size: 2, Type: LeaderExcluded}, Topology{}, 5, ""},
		{"28: as large as the group", &Policy{Size: 8}, Topology{}, 8, ""},
		{"28: s 3, size 8", &Policy{Size: 3}, Topology{}, 8,
			size + "3 divides neither the 8 Pods of a replica of role prefill nor its 7 workers: set workerReplicas of the role so that it fits, or create the ModelServing with one of 1, 2, 4, 7, 8"},
		{"28: s 0", &Policy{}, Topology{}, 8, size + "is 0: set it to 1 or more, or create the ModelServing without subGroupPolicy"},
		{"28: s below 0", &Policy{Size: -2}, Topology{}, 8, size + "is -2: set it to 1 or more, or create the ModelServing without subGroupPolicy"},
		{"28: s > size", &Policy{Size: 9}, Topology{}, 8,
			size + "9 is larger than a replica of role prefill, which has 8 Pods: set workerReplicas of the role so that it fits, or create the ModelServing with one of 1, 2, 4, 7, 8"},
		{"28: s > size of an entry alone", &Policy{Size: 2}, Topology{}, 1,
			size + "2 is larger than a replica of role prefill, which has 1 Pod: set workerReplicas of the role so that it fits, or create the ModelServing with one of 1"},
		{"28: exclusive annotation without s", nil, Topology{Subgroup: "rack"}, 8, topology + ": needs subgroups: set spec.template.subGroupPolicy.subGroupSize, or remove the annotation"},
		{"31: size - 1 is not divisible", &Policy{Size: 4, Type: LeaderExcluded}, Topology{}, 8,
			size + "4 does not divide the 7 workers of a replica of role prefill, and with LeaderExcluded only workers are in subgroups: set workerReplicas of the role so that it fits, or create the ModelServing with one of 1, 7"},
		{"28: both levels by one label", &Policy{Size: 4}, Topology{Group: "zone", Subgroup: "zone"}, 8,
			topology + ": is zone, as the annotation leaderworkerset.sigs.k8s.io/exclusive-topology: name the label of smaller domains, or remove one of the two"},
		{"28: both levels by one label, one subgroup", &Policy{Size: 8}, Topology{Group: "zone", Subgroup: "zone"}, 8, ""},
		{"28: exclusive annotation that is no label", &Policy{Size: 4}, Topology{Group: "a b"}, 8,
			`metadata.annotations[leaderworkerset.sigs.k8s.io/exclusive-topology]: "a b" is no key of a node label, such as topology.kubernetes.io/zone: `},
	} {
		t.Run(c.row, func(t *testing.T) {
			problems := Validate(c.policy, c.topology, Role{"fits", c.pods}, Role{"prefill", c.pods})
			if c.problem == "" {
				assert.Empty(t, problems)
				return
			}
			require.NotEmpty(t, problems)
			last := problems[len(problems)-1]
			assert.Equal(t, podmeta.Invalid, last.Kind)
			assert.Contains(t, last.String(), c.problem)
		})
	}
}
