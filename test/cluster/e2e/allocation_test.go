//go:build cluster

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
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
	s.addLauncher(1) // by hand, and without anybody who asks the kubelet
	s.stays("neither is bound", func() bool {
		return len(s.records("launcher-node-1")) == 0
	})
	s.delete("one")
	s.served("two", 1)
	records := s.records("launcher-node-1")
	require.Len(t, records, 1)
	assert.Equal(t, []string{gpu}, records[0].GPUs)
}
