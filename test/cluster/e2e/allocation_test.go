//go:build cluster

package e2e

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/podresourcesapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// waitsFor waits until the status of the app's one requester says that, and an
// Event too.
func (s *site) waitsFor(app, what string) corev1.Pod {
	s.t.Helper()
	var pod corev1.Pod
	s.eventually("the requester of "+app+" is told: "+what, func() bool {
		pods := s.pods(app)
		if len(pods) != 1 {
			return false
		}
		pod = pods[0]
		return strings.Contains(pod.Annotations[podmeta.AnnotationStatus], what) && s.event(pod.UID, what)
	})
	return pod
}

// claim has the requesters of a Deployment say that they have other GPUs than
// they were given; empty: the truth. Its Pod is replaced.
func (s *site) claim(v server, gpus string) {
	s.t.Helper()
	v.claims = gpus
	s.eventually("the Deployment is changed", func() bool {
		var d appsv1.Deployment
		require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: v.app}, &d))
		was := d.DeepCopy()
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		d.Spec.Template = v.template(s.t)
		return s.api.Patch(s.t.Context(), &d, client.MergeFrom(was)) == nil
	})
}

// agent is the Pod of a node's agent.
func (s *site) agent(node int) corev1.Pod {
	s.t.Helper()
	var of corev1.Pod
	s.eventually("node "+cluster.NodeName(node)+" has an agent", func() bool {
		var pods corev1.PodList
		ours := client.MatchingLabels{podmeta.LabelComponent: podmeta.ComponentAgent}
		if s.api.List(s.t.Context(), &pods, client.InNamespace(system), ours) != nil {
			return false
		}
		at := slices.IndexFunc(pods.Items, func(pod corev1.Pod) bool {
			return pod.Spec.NodeName == cluster.NodeName(node) && pod.DeletionTimestamp == nil && podmeta.Ready(&pod)
		})
		if at >= 0 {
			of = pods.Items[at]
		}
		return at >= 0
	})
	return of
}

func TestOneAgentANodeAnswersForAllNamespaces(t *testing.T) {
	s := newPool(t, nil)
	other := newBareSite(t)
	other.addPool(nil)
	var agents corev1.PodList
	require.NoError(t, s.api.List(t.Context(), &agents, client.MatchingLabels{podmeta.LabelComponent: podmeta.ComponentAgent}))
	var on []string
	for _, agent := range agents.Items {
		assert.Equal(t, system, agent.Namespace)
		on = append(on, agent.Spec.NodeName)
	}
	assert.ElementsMatch(t, []string{cluster.NodeName(1), cluster.NodeName(2)}, on, "one for each node, whatever launchers it has")
	agent := s.agent(1)

	given := map[string][]string{}
	for _, site := range []*site{s, other} {
		site.allReady()
		site.deploy(server{app: "mine", node: 1}, 1)
		pod := site.served("mine", 1)[0]
		launcher := site.poolPods()[cluster.NodeName(1)]
		assert.Len(t, launcher.Spec.Containers, 1, "nothing beside the launcher asks")
		records := site.records(launcher.Name)
		require.Len(t, records, 1)
		given[site.ns+"/"+pod.Name] = records[0].GPUs
	}
	var told podresourcesapi.Pods
	transport := s.once(asController(t, mtls.AgentName(system)))
	defer transport.CloseIdleConnections()
	secured := &http.Client{Transport: transport, Timeout: patience.Wait()}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+agent.Status.PodIP+":8002"+podresourcesapi.Path, nil)
	require.NoError(t, err)
	resp, err := secured.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&told))
	says := map[string][]string{}
	for _, pod := range told.Pods {
		for _, c := range pod.Containers {
			says[pod.Namespace+"/"+pod.Name] = c.Devices[string(podmeta.ResourceGPU)]
		}
	}
	assert.Equal(t, given, says)
	assert.Equal(t, agent.UID, s.agent(1).UID)
}

func TestARequesterThatNamesGPUsOfOthersGetsThemNeverAndIsToldWhatTheKubeletGaveIt(t *testing.T) {
	s := newPool(t, nil)
	s.allReady()
	s.configTold("allocations are checked", func(status v1alpha1.LauncherConfigStatus) bool {
		return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionAllocationsChecked)
	})
	s.deploy(server{app: "honest", node: 1}, 1)
	honest := s.served("honest", 1)[0]
	launcher := s.poolPods()[cluster.NodeName(1)].Name
	records := s.records(launcher)
	require.Len(t, records, 1)
	mine := records[0].GPUs[0]
	other := s.cluster.UUIDs(1)[0]
	if other == mine {
		other = s.cluster.UUIDs(1)[1]
	}

	liar := server{app: "liar", node: 1, claims: "GPU-of-nobody"}
	s.deploy(liar, 1)
	s.waitsFor("liar", "reports GPU GPU-of-nobody, but the kubelet gave its container "+other)
	s.claim(liar, mine)
	s.waitsFor("liar", "reports GPU "+mine+", but the kubelet gave its container "+other)

	assert.Equal(t, records, s.records(launcher), "nobody else is bound, and the honest one as before")
	assert.Equal(t, honest.UID, s.served("honest", 1)[0].UID)
	s.answers("honest")
	// The next one that the kubelet gives that GPU is not kept waiting by the lie.
	s.scale("honest", 0)
	s.gone("honest")
	s.scale("honest", 1)
	s.served("honest", 1)
	s.answers("honest")
	records = s.records(launcher)
	require.Len(t, records, 1)
	assert.Equal(t, []string{mine}, records[0].GPUs)

	s.claim(liar, "")
	s.served("liar", 1)
	s.answers("liar")
	s.answers("honest")
}

func TestAGPUThatTwoRequestersClaimGoesToNeitherUntilOneIsGone(t *testing.T) {
	s := newBareSite(t)
	gpu := s.cluster.UUIDs(1)[0]
	for _, app := range []string{"one", "two"} { // before there is a launcher, so that none is first
		s.start(server{app: app, node: 1, claims: gpu})
	}
	s.waitsFor("one", s.ns+"/two has one of its GPUs too")
	s.waitsFor("two", s.ns+"/one has one of its GPUs too")
	s.addLauncher(1) // by hand, of a LauncherConfig for which nobody asks the kubelet
	s.stays("neither is bound", func() bool {
		return len(s.records("launcher-node-1")) == 0
	})
	s.delete("one")
	s.served("two", 1)
	records := s.records("launcher-node-1")
	require.Len(t, records, 1)
	assert.Equal(t, []string{gpu}, records[0].GPUs)
}
