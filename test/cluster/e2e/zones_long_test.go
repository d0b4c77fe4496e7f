//go:build cluster && clusterlong

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
)

const (
	zone = corev1.LabelTopologyZone
	rack = "example.com/rack"
	tpu  = "google.com/tpu"
)

// newZones makes a namespace with launchers in a cluster of its own: two zones, in each of them two nodes,
// which are racks. Each node says that it has TPUs.
func newZones(t *testing.T) *site {
	t.Helper()
	c, err := cluster.Up(t.Context(), cluster.Options{Name: fmt.Sprintf("zones-%d", os.Getpid()), Nodes: 4, GPUs: 2, Progress: os.Stderr})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Down()) })
	l := &lane{}
	require.NoError(t, l.setUp(t.Context(), c.Name))
	heldLanes.Store(t.Name(), l)
	t.Cleanup(func() { heldLanes.Delete(t.Name()) })
	for number := 1; number <= c.Nodes; number++ {
		name := cluster.NodeName(number)
		_, err := c.Kubectl(t.Context(), nil, "label", "node", name, fmt.Sprintf("%s=zone-%d", zone, (number+1)/2), rack+"=rack-"+name)
		require.NoError(t, err)
		_, err = c.Kubectl(t.Context(), nil, "patch", "node", name, "--subresource=status", "--type=merge", "-p", `{"status":{"capacity":{"`+tpu+`":"4"}}}`)
		require.NoError(t, err)
	}
	return newPool(t, nil)
}

// inZones is a role of two replicas. Each has an entry with a GPU, whose model is org/MODEL, and three
// workers with a TPU each, which are plain Pods.
func inZones(t *testing.T, model string, seconds int64) []v1alpha1.ServingRole {
	t.Helper()
	worker := corev1.PodTemplateSpec{}
	worker.Spec.TerminationGracePeriodSeconds = &seconds
	worker.Spec.Containers = []corev1.Container{{
		Name: "worker", Image: "hotseat.local/requester:dev", ImagePullPolicy: corev1.PullNever, Args: []string{"wait"},
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{tpu: *resource.NewQuantity(1, resource.DecimalSI)}},
	}}
	entry := server{app: "llama", patch: server{app: model}.serverPatch(t)}.template(t)
	return []v1alpha1.ServingRole{{
		Name: "server", Replicas: new(int32(2)), WorkerReplicas: new(int32(3)), EntryTemplate: raw(t, entry), WorkerTemplate: raw(t, worker),
	}}
}

// placing is what subgroups give a Pod.
type placing struct {
	labels, annotations map[string]string
	env                 []string
}

// placings returns it for all Pods of llama, by their names, after it has checked where they are: each
// replica has a zone, and each subgroup a rack.
func (s *site) placings() (all map[string]placing, uids map[string]types.UID) {
	s.t.Helper()
	all, uids = map[string]placing{}, map[string]types.UID{}
	zones, racks := map[string]string{}, map[string]string{} // the replica, and the subgroup, that is there
	for name, pod := range s.requesters() {
		var node corev1.Node
		require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Name: pod.Spec.NodeName}, &node))
		is := placing{labels: map[string]string{}, annotations: map[string]string{}}
		for _, key := range []string{podmeta.LabelGroupKey, podmeta.LabelSubgroupIndex, podmeta.LabelSubgroupKey} {
			is.labels[key] = pod.Labels[key]
		}
		for _, key := range []string{podmeta.AnnotationSubgroupSize, podmeta.AnnotationExclusiveTopology, podmeta.AnnotationSubgroupExclusiveTopology} {
			is.annotations[key] = pod.Annotations[key]
		}
		for _, e := range pod.Spec.Containers[0].Env {
			if strings.HasPrefix(e.Name, "TPU_") {
				is.env = append(is.env, e.Name+"="+e.Value)
			}
		}
		all[name], uids[name] = is, pod.UID
		for _, in := range []struct {
			there        map[string]string
			domain, key  string
			exclusiveFor string
		}{{zones, node.Labels[zone], is.labels[podmeta.LabelGroupKey], "zone"}, {racks, node.Labels[rack], is.labels[podmeta.LabelSubgroupKey], "rack"}} {
			require.NotEmpty(s.t, in.key, name)
			if other := in.there[in.domain]; other != "" {
				assert.Equal(s.t, other, in.key, "%s %s of Pod %s", in.exclusiveFor, in.domain, name)
			}
			in.there[in.domain] = in.key
		}
	}
	assert.Len(s.t, zones, 2)
	assert.Len(s.t, racks, 4)
	return all, uids
}

func TestSubgroupsAreInRacksOfTheirZoneAndKeepTheirLabels(t *testing.T) {
	s := newZones(t)
	serving := &v1alpha1.ModelServing{}
	serving.Namespace, serving.Name = s.ns, "llama"
	serving.Annotations = map[string]string{podmeta.AnnotationExclusiveTopology: zone, podmeta.AnnotationSubgroupExclusiveTopology: rack}
	serving.Spec.UpdateMode = v1alpha1.UpdateInPlace
	serving.Spec.Template.SubGroupPolicy = &v1alpha1.SubGroupPolicy{SubGroupSize: 2}
	serving.Spec.Template.Roles = inZones(t, "one", 1)
	require.NoError(t, s.api.Create(t.Context(), serving))
	s.runs("llama", 1)
	first, uids := s.placings()
	require.Len(t, first, 8)
	const entry, worker = "llama-0-server-0-0", "llama-0-server-0-3"
	assert.Equal(t, "0", first[entry].labels[podmeta.LabelSubgroupIndex])
	assert.Empty(t, first[entry].env)
	assert.Equal(t, "1", first[worker].labels[podmeta.LabelSubgroupIndex])
	assert.Contains(t, first[worker].env, "TPU_WORKER_ID=1")
	host := func(pod string) string { return "llama-0-server-0-" + pod + "." + s.ns + ".svc" }
	assert.Contains(t, first[worker].env, "TPU_WORKER_HOSTNAMES="+host("2")+","+host("3"))

	// Other models come to the Pods as they stand.
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.Template.Roles = inZones(t, "two", 1) })
	s.rolledOut()
	second, same := s.placings()
	assert.Equal(t, first, second)
	assert.Equal(t, uids, same)
	answered, err := s.ask(s.pod(entry).Status.PodIP+":8000", "org/two")
	require.NoError(t, err)
	assert.Equal(t, "org/two", answered)

	// Other Pods are rolled out.
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.Template.Roles = inZones(t, "two", 2) })
	s.rolledOut()
	third, uids := s.placings()
	assert.Equal(t, first, third)
	for name := range same {
		assert.NotEqual(t, same[name], uids[name], name)
	}

	// The Pods of a replica are recreated.
	s.delete(worker)
	s.eventually("the Pods of the replica are recreated", func() bool {
		there := s.requesters()
		for _, name := range []string{entry, worker} {
			if there[name] == nil || there[name].UID == uids[name] {
				return false
			}
		}
		return true
	})
	s.runs("llama", 1)
	fourth, last := s.placings()
	assert.Equal(t, first, fourth)
	assert.Equal(t, uids["llama-0-server-1-0"], last["llama-0-server-1-0"], "the other replica stays")
}
