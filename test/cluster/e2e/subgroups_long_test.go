//go:build cluster && clusterlong

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
)

// TestSubgroupsOfTPUHostsHaveTheirLabelsAndEnvironment has replicas of plain Pods in subgroups. Each line is
// about a Pod: the index of its subgroup, its TPU_WORKER_ID, and the numbers of the Pods that are its hosts.
func TestSubgroupsOfTPUHostsHaveTheirLabelsAndEnvironment(t *testing.T) {
	s := newBareSite(t)
	for number := 1; number <= 2; number++ { // what a device plugin has the kubelet write
		node := []string{"patch", "node", cluster.NodeName(number), "--subresource=status", "--type=json", "-p"}
		_, err := s.cluster.Kubectl(t.Context(), nil, append(node, `[{"op":"add","path":"/status/capacity/google.com~1tpu","value":"16"}]`)...)
		require.NoError(t, err)
	}
	template := func(tpus int64) corev1.PodTemplateSpec {
		of := corev1.PodTemplateSpec{}
		of.Spec.TerminationGracePeriodSeconds = new(int64(0))
		of.Spec.Containers = []corev1.Container{{Name: "main", Image: "hotseat.local/requester:dev", ImagePullPolicy: corev1.PullNever, Args: []string{"wait"}}}
		if tpus > 0 {
			of.Spec.Containers[0].Resources.Limits = corev1.ResourceList{tpu: *resource.NewQuantity(tpus, resource.DecimalSI)}
		}
		return of
	}
	cases := map[string]struct {
		size, subgroup int32
		leaderAsks     bool
		want           []string
	}{
		"five":  {5, 2, false, []string{"0 -", "0 0 1,2", "0 1 1,2", "1 0 3,4", "1 1 3,4"}},
		"asks":  {5, 2, true, []string{"0 0 0,1,2", "0 1 0,1,2", "0 2 0,1,2", "1 0 3,4", "1 1 3,4"}},
		"eight": {8, 4, false, []string{"0 -", "0 0 1,2,3,4", "0 1 1,2,3,4", "0 2 1,2,3,4", "0 3 1,2,3,4", "1 0 5,6,7", "1 1 5,6,7", "1 2 5,6,7"}},
		"three": {3, 1, false, []string{"0 -", "0 0 1", "1 0 2"}},
	}
	for name, c := range cases {
		serving := &v1alpha1.ModelServing{}
		serving.Namespace, serving.Name = s.ns, name
		serving.Spec.Template.SubGroupPolicy = &v1alpha1.SubGroupPolicy{SubGroupSize: c.subgroup}
		leader := template(0)
		if c.leaderAsks {
			leader = template(1)
		}
		workers := c.size - 1
		serving.Spec.Template.Roles = []v1alpha1.ServingRole{{Name: "h", WorkerReplicas: &workers, EntryTemplate: raw(t, leader), WorkerTemplate: raw(t, template(1))}}
		require.NoError(t, s.api.Create(t.Context(), serving))
	}
	for name, c := range cases {
		s.runs(name, 1)
		var got []string
		for n := range c.size {
			pod := s.pod(fmt.Sprintf("%s-0-h-0-%d", name, n))
			env := map[string]string{}
			for _, e := range pod.Spec.Containers[0].Env {
				env[e.Name] = e.Value
			}
			line := pod.Labels[podmeta.LabelSubgroupIndex] + " " + env["TPU_WORKER_ID"]
			if env["TPU_WORKER_ID"] == "" {
				got = append(got, line+"-")
				assert.Empty(t, env["TPU_WORKER_HOSTNAMES"])
				continue
			}
			id, err := strconv.Atoi(env["TPU_WORKER_ID"])
			require.NoError(t, err)
			var hosts []string
			for host := range strings.SplitSeq(env["TPU_WORKER_HOSTNAMES"], ",") {
				hosts = append(hosts, strings.TrimSuffix(strings.TrimPrefix(host, name+"-0-h-0-"), "."+s.ns+".svc"))
				assert.Contains(t, env["TPU_PROCESS_ADDRESSES"], host+":8476")
			}
			require.Less(t, id, len(hosts))
			assert.Equal(t, fmt.Sprint(n), hosts[id], "the ID is the place among the hosts")
			got = append(got, line+" "+strings.Join(hosts, ","))
		}
		assert.Equal(t, c.want, got, name)
	}
}
