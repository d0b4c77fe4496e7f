//go:build cluster

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
)

// newServerConfig makes an InferenceServerConfig of model org/<name>.
func (s *site) newServerConfig(name, launcherConfig string) {
	s.t.Helper()
	require.NoError(s.t, s.api.Create(s.t.Context(), &v1alpha1.InferenceServerConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name},
		Spec: v1alpha1.InferenceServerConfigSpec{
			ModelServerConfig:  v1alpha1.ModelServerConfig{Port: 8000, Args: server{app: name}.engineArgs()},
			LauncherConfigName: launcherConfig,
		},
	}))
}

// serverConfigTold waits until the status of an InferenceServerConfig is so.
func (s *site) serverConfigTold(name, what string, so func(v1alpha1.InferenceServerConfigStatus) bool) *v1alpha1.InferenceServerConfig {
	s.t.Helper()
	var config v1alpha1.InferenceServerConfig
	s.eventually(name+": "+what, func() bool {
		require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &config))
		return config.Status.ObservedGeneration == config.Generation && so(config.Status)
	})
	return &config
}

func TestStatusesTellWhoIsBoundToWhatAndWhatSleepsWhere(t *testing.T) {
	s := newPool(t, nil)
	s.newServerConfig("seen", "nowhere")
	missing := s.serverConfigTold("seen", "its LauncherConfig is missing", func(status v1alpha1.InferenceServerConfigStatus) bool {
		c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAccepted)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonLauncherConfigMissing
	})
	s.eventually("an Event tells", func() bool { return s.event(missing.UID, "there is no LauncherConfig nowhere") })
	s.kubectl("patch", "isc/seen", "--type=merge", `--patch={"spec":{"launcherConfigName":"simulated"}}`)
	s.serverConfigTold("seen", "it is accepted, and nobody asks for it", func(status v1alpha1.InferenceServerConfigStatus) bool {
		c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAvailable)
		return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionAccepted) && c != nil && c.Reason == v1alpha1.ReasonNoneNeeded
	})

	s.deploy(server{app: "seen", node: 1, config: "seen"}, 1)
	pod := s.served("seen", 1)[0]
	s.serverConfigTold("seen", "its Pod is ready", func(status v1alpha1.InferenceServerConfigStatus) bool {
		c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAvailable)
		return status.Requesters == 1 && status.Ready == 1 && status.Asleep == 0 && c != nil && c.Reason == v1alpha1.ReasonAllReady
	})
	awake := s.configTold("the instance of the Pod is listed", func(status v1alpha1.LauncherConfigStatus) bool {
		return len(status.Instances) == 1 && status.Instances[0].State == "awake" && status.Instances[0].Requester == pod.Name
	}).Instances[0]
	assert.Equal(t, cluster.NodeName(1), awake.Node)
	assert.True(t, strings.HasPrefix(awake.Name, "seen-"), awake.Name)
	assert.Len(t, awake.GPUs, 1)

	s.scale("seen", 0)
	s.gone("seen")
	s.serverConfigTold("seen", "it sleeps", func(status v1alpha1.InferenceServerConfigStatus) bool {
		return status.Requesters == 0 && status.Asleep == 1 && status.SleepsOn == cluster.NodeName(1)
	})
	asleep := s.configTold("the sleeper is listed", func(status v1alpha1.LauncherConfigStatus) bool {
		return len(status.Instances) == 1 && status.Instances[0].State == "sleeping" && status.Instances[0].Requester == ""
	}).Instances[0]
	assert.Equal(t, awake.Name, asleep.Name)
	assert.False(t, asleep.Since.Before(&awake.Since))
}

// reasons are those of the controller's Events about a Pod, with their types, in
// the order in which they came.
func (s *site) reasons(pod *corev1.Pod) (reasons []string) {
	s.t.Helper()
	var list eventsv1.EventList
	require.NoError(s.t, s.api.List(s.t.Context(), &list, client.InNamespace(s.ns)))
	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	for _, e := range list.Items {
		if e.Regarding.UID == pod.UID && e.ReportingController == "hotseat" {
			reasons = append(reasons, e.Type+" "+e.Reason)
		}
	}
	return reasons
}

func TestAColdStartIsToldOnceAndAFailureAsAWarning(t *testing.T) {
	s := newPool(t, func(c *v1alpha1.LauncherConfig) { c.Spec.Population.Mode = v1alpha1.OnDemand })
	s.deploy(server{app: "cold", node: 1}, 1)
	cold := s.served("cold", 1)[0]
	s.eventually("an Event tells that a launcher starts", func() bool { return len(s.reasons(&cold)) > 0 })

	failing := s.start(server{app: "failing", node: 1, args: []string{"--sim-crash-at-load=exit:3"}})
	s.eventually("the status of the requester says what failed, and when there is another attempt", func() bool {
		status := s.status("failing")
		return status.State == "Waiting" && status.Reason == "AttemptFailed" && strings.Contains(status.Message, "the next one is at ")
	})
	s.eventually("an Event warns of it", func() bool { return slices.Contains(s.reasons(failing), "Warning AttemptFailed") })
	assert.Equal(t, []string{"Normal LauncherStarting"}, s.reasons(&cold))
	s.delete("failing")
	s.gone("failing")
}
