//go:build cluster

package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

const (
	exampleRanks = "examples/groups/two-launchers.yaml"
	bigEntry     = "big-0-server-0-0"
	bigWorker    = "big-0-server-0-1"
)

// serverOfBig checks that the ranks of the example are those of one server which answers, and
// returns their instances, the entry first.
func (s *site) serverOfBig() (entry, worker launcherapi.Instance) {
	s.t.Helper()
	s.runs("big", 1)
	launcher, entry := s.boundTo(bigEntry)
	_, worker = s.boundTo(bigWorker)
	require.NotNil(s.t, entry.Rank)
	require.NotNil(s.t, worker.Rank)
	assert.Equal(s.t, []int{0, 1}, []int{entry.Rank.Index, worker.Rank.Index})
	assert.Equal(s.t, entry.Rank.Group, worker.Rank.Group)
	assert.Equal(s.t, entry.Rank.Entry, worker.Rank.Entry)
	assert.Equal(s.t, fmt.Sprintf("%s:%d", launcher.Status.PodIP, entry.Leased[len(entry.Leased)-1]), entry.Rank.Entry)
	assert.Zero(s.t, worker.Port, "a worker has no HTTP")
	for _, address := range []string{s.leadsToLauncher(bigEntry), s.pod(bigEntry).Status.PodIP + ":8000"} {
		answered, err := s.ask(address, "org/big")
		require.NoError(s.t, err)
		assert.Equal(s.t, "org/big", answered)
	}
	return entry, worker
}

// killRank ends the engine of a rank by SIGKILL, on the node of its requester.
func (s *site) killRank(requester string, i launcherapi.Instance) {
	s.t.Helper()
	node := s.pod(requester).Spec.NodeName
	for number := 1; ; number++ {
		if cluster.NodeName(number) == node {
			s.killProcess(number, cluster.Process{CommandLine: "/enginesim .*" + i.Model, PID: i.PID})
			return
		}
	}
}

func TestServerOfTwoRanksStartsTogetherAndIsMadeAgain(t *testing.T) {
	s := newPool(t, nil)
	s.apply(exampleRanks)
	entry, worker := s.serverOfBig()
	for n, name := range []string{bigEntry, bigWorker} {
		pod := s.pod(name)
		assert.Equal(t, fmt.Sprintf("%d/2", n), pod.Annotations[podmeta.AnnotationRank])
		env := podmeta.ProgramOf(pod).Container.Env
		for _, want := range []corev1.EnvVar{{Name: podmeta.EnvGroupSize, Value: "2"}, {Name: podmeta.EnvWorkerIndex, Value: fmt.Sprint(n)}, {Name: podmeta.EnvEntryAddress, Value: bigEntry + "." + s.ns + ".svc"}} {
			assert.Contains(t, env, want)
		}
	}
	proxy, err := s.proxy(s.pod(bigWorker).Status.PodIP)
	require.NoError(t, err)
	assert.True(t, proxy.NoTraffic && proxy.Ready, "%+v", proxy)

	// A rank that ends ends its server, which is started again for the same requesters. Another end soon
	// afterwards has both requesters replaced.
	for _, killed := range []string{bigWorker, bigEntry} {
		uids := []types.UID{s.pod(bigEntry).UID, s.pod(bigWorker).UID}
		stays, i := true, worker
		if killed == bigEntry {
			stays, i = false, entry
		}
		s.killRank(killed, i)
		s.eventually("both ranks are started again after "+killed+" was killed", func() bool {
			for n, name := range []string{bigEntry, bigWorker} {
				var pod corev1.Pod
				if s.api.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &pod) != nil || (pod.UID == uids[n]) != stays {
					return false
				}
				if was := []string{entry.Rank.Group, worker.Rank.Group}[n]; podmeta.ReadServer(&pod).Group == was {
					return false
				}
			}
			return true
		})
		before := entry
		entry, worker = s.serverOfBig()
		assert.NotEqual(t, before.Rank.Group, entry.Rank.Group, "another start")
	}
}

// twoHosts creates a ModelServing whose entry has all GPUs of the first node, and whose worker
// those of the second.
func (s *site) twoHosts() {
	s.t.Helper()
	gpus := s.cluster.GPUs
	serving := &v1alpha1.ModelServing{}
	serving.Namespace, serving.Name = s.ns, "big"
	role := v1alpha1.ServingRole{Name: "server", WorkerReplicas: new(int32(1))}
	for node, into := range []**runtime.RawExtension{&role.EntryTemplate, &role.WorkerTemplate} {
		raw, err := json.Marshal(server{app: "big", node: node + 1, gpus: gpus, args: []string{fmt.Sprintf("--tensor-parallel-size=%d", 2*gpus)}}.template(s.t))
		require.NoError(s.t, err)
		*into = &runtime.RawExtension{Raw: raw}
	}
	serving.Spec.Template.Roles = []v1alpha1.ServingRole{role}
	require.NoError(s.t, s.api.Create(s.t.Context(), serving))
}

func TestServerOnTwoNodesSleepsAndWakesTogether(t *testing.T) {
	s := newPool(t, nil)
	s.twoHosts()
	entry, worker := s.serverOfBig()
	require.NotEqual(t, s.pod(bigEntry).Spec.NodeName, s.pod(bigWorker).Spec.NodeName)
	s.kubectl("delete", "ms/big", "--timeout="+patience.Wait().String())
	s.eventually("the requesters are gone", func() bool {
		var pods corev1.PodList
		err := s.api.List(t.Context(), &pods, client.InNamespace(s.ns), client.MatchingLabels{podmeta.LabelServing: "big"})
		return err == nil && len(pods.Items) == 0
	})
	s.twoHosts()
	again, other := s.serverOfBig()
	assert.Equal(t, []int{entry.PID, worker.PID}, []int{again.PID, other.PID}, "they were woken")
	assert.Equal(t, entry.Rank, again.Rank)
}
