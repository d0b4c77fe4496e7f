//go:build cluster && clusterlong

package e2e

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/deploy/images"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// installLeaderWorkerSet installs the controllers of LeaderWorkerSets and DisaggregatedSets by
// their own chart while the test runs, with their webhooks, whose certificates they make.
func (s *site) installLeaderWorkerSet() {
	s.t.Helper()
	program, chart, err := cluster.LeaderWorkerSet(s.t.Context(), os.Stderr)
	require.NoError(s.t, err)
	image := images.Image{Files: map[string]string{"/manager": program}, User: "65532:65532"}
	require.NoError(s.t, s.cluster.LoadImage(s.t.Context(), "hotseat.local/lws:dev", image))
	s.t.Cleanup(func() { s.deleteAll("-f", filepath.Join(chart, "crds")) })
	s.installOthersChart("lws", chart, "image.manager.repository=hotseat.local/lws", "image.manager.tag=dev", "image.manager.pullPolicy=Never",
		"resources.requests.cpu=10m", "resources.requests.memory=64Mi", "enableDisaggregatedSet=true")
	s.within(patience.LongWait(), "its webhooks answer: the kubelet has brought the certificates", func() bool {
		return s.api.Create(s.t.Context(), s.leaderWorkerSet("dry", 1, 1, server{app: "dry"}), client.DryRunAll) == nil
	})
}

// object returns an object of a kind that this repository has no type for.
func (s *site) object(apiVersion, kind, name string, spec any) *unstructured.Unstructured {
	s.t.Helper()
	text, err := json.Marshal(map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"namespace": s.ns, "name": name}, "spec": spec})
	require.NoError(s.t, err)
	o := &unstructured.Unstructured{}
	require.NoError(s.t, o.UnmarshalJSON(text))
	return o
}

// leaderWorkerSet returns a LeaderWorkerSet of one group, all of whose Pods are requesters that
// also request a TPU. Its subgroups have subgroup Pods.
func (s *site) leaderWorkerSet(name string, size, subgroup int, v server) *unstructured.Unstructured {
	s.t.Helper()
	template := v.template(s.t)
	template.Spec.Containers[0].Resources.Limits[podmeta.ResourceTPU] = quantity(1)
	return s.object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, map[string]any{"replicas": 1, "leaderWorkerTemplate": map[string]any{
		"size": size, "workerTemplate": template, "subGroupPolicy": map[string]any{"subGroupSize": subgroup},
	}})
}

// addTPUs has each node advertise TPUs, which no Pod can use, while the test runs.
func (s *site) addTPUs() {
	s.t.Helper()
	set := func(ctx context.Context, change func(corev1.ResourceList)) {
		var nodes corev1.NodeList
		require.NoError(s.t, s.api.List(ctx, &nodes))
		for i := range nodes.Items {
			was := nodes.Items[i].DeepCopy()
			change(nodes.Items[i].Status.Capacity)
			change(nodes.Items[i].Status.Allocatable)
			require.NoError(s.t, s.api.Status().Patch(ctx, &nodes.Items[i], client.MergeFrom(was)))
		}
	}
	set(s.t.Context(), func(has corev1.ResourceList) { has[podmeta.ResourceTPU] = resource.MustParse("4") })
	s.t.Cleanup(func() {
		set(context.Background(), func(has corev1.ResourceList) { delete(has, podmeta.ResourceTPU) })
	})
}

// TestLeaderWorkerSetOfRequestersHasSubgroups shows that servers of a LeaderWorkerSet are served
// as those of a Deployment are, and that the labels and variables of its own webhook stay.
func TestLeaderWorkerSetOfRequestersHasSubgroups(t *testing.T) {
	s := newPool(t, nil)
	s.installLeaderWorkerSet()
	s.addTPUs()
	// $(LWS_WORKER_INDEX) in the arguments has the value that the webhook gives the Pod.
	v := server{app: "lead", patch: `{"spec": {"containers": [{"name": "inference-server", "command": ["vllm", "serve", "org/lead"],
		"args": ["--gpu-memory-utilization=0.4", "--served-model-name", "org/lead", "worker-$(LWS_WORKER_INDEX)", "--port=8000"]}]}}`}
	require.NoError(t, s.api.Create(t.Context(), s.leaderWorkerSet("lead", 4, 2, v)))
	s.served("lead", 4)
	names := []string{"lead-0", "lead-0-1", "lead-0-2", "lead-0-3"}
	for w, name := range names {
		pod := s.pod(name)
		index := strconv.Itoa(w / 2)
		key := sha1.Sum([]byte("lead-0/" + index))
		assert.Equal(t, index, pod.Labels[podmeta.LabelSubgroupIndex], name)
		assert.Equal(t, hex.EncodeToString(key[:]), pod.Labels[podmeta.LabelSubgroupKey], name)
		assert.Equal(t, "2", pod.Annotations[podmeta.AnnotationSubgroupSize], name)
		first := w / 2 * 2
		hosts := names[first] + ".lead," + names[first+1] + ".lead"
		env := map[string]string{}
		for _, e := range podmeta.ProgramOf(pod).Container.Env {
			env[e.Name] = e.Value
		}
		id := strconv.Itoa(w % 2)
		if w == 0 {
			id = "-1" // LeaderWorkerSet v0.9.0 counts down for each leader whose subgroups have a size
		}
		assert.Equal(t, id, env[podmeta.EnvTPUWorkerID], name)
		assert.Equal(t, hosts, env[podmeta.EnvTPUWorkerHostnames], name)

		_, instance := s.boundTo(name)
		assert.Equal(t, strconv.Itoa(w%2), instance.EnvVars[podmeta.EnvTPUWorkerID].Value, "the engine of %s is of the same subgroup", name)
		assert.Equal(t, hosts, instance.EnvVars[podmeta.EnvTPUWorkerHostnames].Value, name)
		assert.Contains(t, instance.Args, "worker-"+strconv.Itoa(w), name)
		assert.NotContains(t, instance.EnvVars, "LWS_LEADER_ADDRESS", "what differs between Pods of one server is no part of what runs")
		answered, err := s.ask(pod.Status.PodIP+":8000", "org/lead")
		require.NoError(t, err, name)
		assert.Equal(t, "org/lead", answered, name)
	}
}

// TestDisaggregatedSetOfRequestersRollsOver changes one of two roles: both are replaced, and answer
// at the end.
func TestDisaggregatedSetOfRequestersRollsOver(t *testing.T) {
	s := newPool(t, nil)
	s.installLeaderWorkerSet()
	set := func(decode ...string) *unstructured.Unstructured {
		var roles []any
		for _, v := range []server{{app: "prefill"}, {app: "decode", args: decode}} {
			roles = append(roles, map[string]any{"name": v.app, "spec": map[string]any{"replicas": 1, "leaderWorkerTemplate": map[string]any{"size": 1, "workerTemplate": v.template(t)}}})
		}
		return s.object("disaggregatedset.x-k8s.io/v1", "DisaggregatedSet", "pair", map[string]any{"roles": roles})
	}
	require.NoError(t, s.api.Create(t.Context(), set()))
	before := map[string]types.UID{}
	for _, role := range []string{"prefill", "decode"} {
		before[role] = s.served("pair-"+role, 1)[0].UID // the label app is the DisaggregatedSet's
	}
	changed := set("--sim-tokens=7")
	text, err := json.Marshal(map[string]any{"spec": changed.Object["spec"]})
	require.NoError(t, err)
	require.NoError(t, s.api.Patch(t.Context(), changed, client.RawPatch(types.MergePatchType, text)))
	for _, role := range []string{"prefill", "decode"} {
		s.eventually("the Pod of "+role+" is another one", func() bool {
			pods := s.pods("pair-" + role)
			return len(pods) == 1 && pods[0].UID != before[role] && readyPod(&pods[0])
		})
		pod := s.pods("pair-" + role)[0]
		_, instance := s.boundTo(pod.Name)
		assert.Equal(t, role == "decode", slices.Contains(instance.Args, "--sim-tokens=7"), role)
		answered, err := s.ask(pod.Status.PodIP+":8000", "org/"+role)
		require.NoError(t, err, role)
		assert.Equal(t, "org/"+role, answered)
	}
}
