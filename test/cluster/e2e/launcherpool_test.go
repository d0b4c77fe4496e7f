//go:build cluster

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
)

// newPool makes a namespace with the LauncherConfig of the examples, changed.
func newPool(t *testing.T, change func(*v1alpha1.LauncherConfig)) *site {
	t.Helper()
	s := newBareSite(t)
	s.addPool(change)
	return s
}

// addPool makes the LauncherConfig of the examples, changed.
func (s *site) addPool(change func(*v1alpha1.LauncherConfig)) {
	s.t.Helper()
	text, err := os.ReadFile(root("examples/dual-pods/launcherconfig.yaml"))
	require.NoError(s.t, err)
	var config v1alpha1.LauncherConfig
	require.NoError(s.t, yaml.UnmarshalStrict(text, &config))
	config.Namespace = s.ns
	if change != nil {
		change(&config)
	}
	require.NoError(s.t, s.api.Create(s.t.Context(), &config))
}

func (s *site) config() *v1alpha1.LauncherConfig {
	s.t.Helper()
	var config v1alpha1.LauncherConfig
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: "simulated"}, &config))
	return &config
}

// template changes the Pod template of the LauncherConfig.
func (s *site) template(change func(container map[string]any)) {
	s.t.Helper()
	s.eventually("the template is changed", func() bool { // the controller writes the status meanwhile
		config := s.config()
		changed := config.DeepCopy()
		changeTemplate(s.t, changed, change)
		return s.api.Patch(s.t.Context(), changed, client.MergeFrom(config)) == nil
	})
}

func changeTemplate(t *testing.T, config *v1alpha1.LauncherConfig, change func(container map[string]any)) {
	t.Helper()
	var template map[string]any
	require.NoError(t, json.Unmarshal(config.Spec.PodTemplate.Raw, &template))
	change(template["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any))
	raw, err := json.Marshal(template)
	require.NoError(t, err)
	config.Spec.PodTemplate.Raw = raw
}

// poolPods are the launchers of the namespace that are not being deleted, by node.
func (s *site) poolPods() map[string]corev1.Pod {
	s.t.Helper()
	var list corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &list, client.InNamespace(s.ns), client.MatchingLabels{podmeta.LabelLauncherConfig: "simulated"}))
	living := map[string]corev1.Pod{}
	for _, p := range list.Items {
		if p.DeletionTimestamp.IsZero() {
			require.NotContains(s.t, living, p.Spec.NodeName, "one launcher on each node")
			living[p.Spec.NodeName] = p
		}
	}
	return living
}

// configTold waits until the status of the LauncherConfig is so.
func (s *site) configTold(what string, so func(v1alpha1.LauncherConfigStatus) bool) v1alpha1.LauncherConfigStatus {
	s.t.Helper()
	var status v1alpha1.LauncherConfigStatus
	s.eventually(what, func() bool { status = s.config().Status; return so(status) })
	return status
}

func conditionIs(s v1alpha1.LauncherConfigStatus, kind, reason string, status metav1.ConditionStatus) bool {
	c := meta.FindStatusCondition(s.Conditions, kind)
	return c != nil && c.Status == status && c.Reason == reason
}

// allReady waits until each of the two nodes has a launcher that is ready and of
// the present template.
func (s *site) allReady() {
	s.t.Helper()
	s.configTold("every launcher is ready", func(status v1alpha1.LauncherConfigStatus) bool {
		return status.Launchers == 2 && status.Ready == 2 && status.Outdated == 0 && status.ObservedGeneration == s.config().Generation &&
			conditionIs(status, v1alpha1.ConditionAvailable, v1alpha1.ReasonAllReady, metav1.ConditionTrue)
	})
}

func TestEachNodeHasALauncherThatServesRequestersAndIsOpenToTheControllerAlone(t *testing.T) {
	s := newPool(t, nil)
	s.allReady()
	pods := s.poolPods()
	require.Contains(t, pods, cluster.NodeName(1))
	require.Contains(t, pods, cluster.NodeName(2))

	s.apply("examples/dual-pods/requesters.yaml")
	s.served("model-a", 1)
	s.answers("model-a")
	var set appsv1.DaemonSet
	require.NoError(t, s.api.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "simulated-launcher"}, &set))
	assert.EqualValues(t, 1, set.Generation, "the controller writes its DaemonSet once")
	s.configTold("one instance is awake", func(status v1alpha1.LauncherConfigStatus) bool { return status.Awake == 1 && status.Asleep == 0 })
	s.scale("model-a", 0)
	s.gone("model-a")
	s.configTold("it sleeps", func(status v1alpha1.LauncherConfigStatus) bool {
		return status.Awake == 0 && status.Asleep == 1 && status.SleepsOn == cluster.NodeName(1)
	})

	s.openToTheControllerAlone(pods[cluster.NodeName(1)].Status.PodIP)
}

// secretOf is the Secret with the certificate of a launcher that the controller made.
func secretOf(pod *corev1.Pod) string {
	for _, v := range pod.Spec.Volumes {
		if v.Name == "hotseat-tls" {
			return v.Secret.SecretName
		}
	}
	return ""
}

func TestALauncherOnDemandIsMadeOnceAndOnTheNodeThatNeedsIt(t *testing.T) {
	s := newPool(t, func(c *v1alpha1.LauncherConfig) { c.Spec.Population.Mode = v1alpha1.OnDemand })
	s.configTold("nobody needs one", func(status v1alpha1.LauncherConfigStatus) bool {
		return conditionIs(status, v1alpha1.ConditionAvailable, v1alpha1.ReasonNoneNeeded, metav1.ConditionTrue)
	})
	assert.Empty(t, s.poolPods())

	s.apply("examples/dual-pods/requesters.yaml")
	s.served("model-a", 1)
	s.answers("model-a")
	pods := s.poolPods()
	assert.Len(t, pods, 1)
	first := pods[cluster.NodeName(1)]
	require.NotEmpty(t, first.Name)

	s.scale("model-a", 0)
	s.gone("model-a")
	require.NoError(t, s.api.Delete(t.Context(), &first))
	s.eventually("the launcher is gone", func() bool { return len(s.poolPods()) == 0 })
	s.scale("model-b", 1)
	s.served("model-b", 1)
	second := s.poolPods()[cluster.NodeName(1)]
	assert.Equal(t, first.Name, second.Name, "one name, one launcher")
	assert.NotEqual(t, first.UID, second.UID)
}

func TestALauncherOnDemandGoesWhenItHasHadNoRequesterForItsIdleTime(t *testing.T) {
	s := newPool(t, func(c *v1alpha1.LauncherConfig) {
		c.Spec.Population.Mode, c.Spec.Population.IdleTimeout = v1alpha1.OnDemand, &metav1.Duration{Duration: 5 * time.Second}
	})
	s.apply("examples/dual-pods/requesters.yaml")
	s.served("model-a", 1)
	first := s.poolPods()[cluster.NodeName(1)]
	s.stays("a launcher with a requester stays", func() bool { return s.poolPods()[cluster.NodeName(1)].UID == first.UID })
	s.scale("model-a", 0)
	s.gone("model-a")
	s.eventually("it goes once it is idle", func() bool { return len(s.poolPods()) == 0 })
	s.configTold("nobody needs one", func(status v1alpha1.LauncherConfigStatus) bool {
		return conditionIs(status, v1alpha1.ConditionAvailable, v1alpha1.ReasonNoneNeeded, metav1.ConditionTrue)
	})
	s.scale("model-a", 1) // cold again
	s.served("model-a", 1)
	s.answers("model-a")
	assert.NotEqual(t, first.UID, s.poolPods()[cluster.NodeName(1)].UID)
}

func TestAnEditedTemplateReplacesUnboundLaunchersAndBoundOnesAfterUnbinding(t *testing.T) {
	s := newPool(t, nil)
	s.allReady()
	s.apply("examples/dual-pods/requesters.yaml")
	requester := s.served("model-a", 1)[0]
	before := s.poolPods()
	isNew := func(node string) bool {
		pod, ok := s.poolPods()[node]
		return ok && pod.UID != before[node].UID && pod.Spec.Containers[0].Env[0].Value == "another template"
	}

	s.template(func(c map[string]any) {
		c["env"] = append([]any{map[string]any{"name": "EDITED", "value": "another template"}}, c["env"].([]any)...)
	})
	s.eventually("the launcher that nobody is bound to is replaced", func() bool { return isNew(cluster.NodeName(2)) })
	s.configTold("the other one is outdated", func(status v1alpha1.LauncherConfigStatus) bool { return status.Outdated == 1 && status.Ready == 2 })
	assert.Equal(t, before[cluster.NodeName(1)].UID, s.poolPods()[cluster.NodeName(1)].UID)
	assert.Equal(t, requester.UID, s.served("model-a", 1)[0].UID)
	s.answers("model-a")

	s.scale("model-a", 0)
	s.gone("model-a")
	s.eventually("the launcher is replaced once nobody is bound to it", func() bool { return isNew(cluster.NodeName(1)) })
	s.allReady()
	s.scale("model-a", 1)
	s.served("model-a", 1)
	s.answers("model-a")
}

func TestAMalformedTemplateIsToldAndWorksOnceItIsMended(t *testing.T) {
	malformedTemplate(t, "imagePullPolice", "Never", "imagePullPolice")
}

// malformedTemplate has a LauncherConfig whose container has a field that is
// wrong; says is what people are told of it.
func malformedTemplate(t *testing.T, field string, value any, says string) {
	t.Helper()
	var old any
	s := newPool(t, func(config *v1alpha1.LauncherConfig) {
		changeTemplate(t, config, func(c map[string]any) {
			old = c[field]
			c[field] = value
		})
	})
	status := s.configTold("the template is found wrong", func(status v1alpha1.LauncherConfigStatus) bool {
		return conditionIs(status, v1alpha1.ConditionAccepted, v1alpha1.ReasonMalformedTemplate, metav1.ConditionFalse)
	})
	assert.Contains(t, meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAccepted).Message, says)
	s.eventually("an Event tells", func() bool { return s.event(s.config().UID, says) })
	s.apply("examples/dual-pods/requesters.yaml")
	s.eventually("the requester is told", func() bool {
		pods := s.pods("model-a")
		return len(pods) == 1 && strings.Contains(pods[0].Annotations[podmeta.AnnotationStatus], says)
	})
	assert.Empty(t, s.poolPods())

	s.template(func(c map[string]any) {
		delete(c, field)
		if old != nil {
			c[field] = old
		}
	})
	s.allReady()
	s.served("model-a", 1)
	s.answers("model-a")
}

// event says that there is a warning with that text about an object.
func (s *site) event(uid types.UID, text string) bool {
	s.t.Helper()
	var list eventsv1.EventList
	require.NoError(s.t, s.api.List(s.t.Context(), &list, client.InNamespace(s.ns)))
	for _, e := range list.Items {
		if e.Regarding.UID == uid && e.Type == corev1.EventTypeWarning && strings.Contains(e.Note, text) {
			return true
		}
	}
	return false
}

func TestALauncherThatIsNotRootServes(t *testing.T) {
	chmod, err := laneOf(t).cluster.InNode(t.Context(), 1, "chmod", "-R", "a+rwX", cluster.SimGPUDir) // the stand-in for device files
	require.NoError(t, err)
	require.NoError(t, chmod.Run())
	s := newPool(t, func(config *v1alpha1.LauncherConfig) {
		changeTemplate(t, config, func(c map[string]any) {
			c["securityContext"] = map[string]any{"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": true}
		})
	})
	s.deploy(server{app: "plain", node: 1}, 1)
	s.served("plain", 1)
	s.answers("plain")
	pod := s.poolPods()[cluster.NodeName(1)]
	log := s.kubectl("logs", pod.Name, "-c", podmeta.ServingContainer)
	assert.NotContains(t, log, "READ THE TOKEN")
	s.scale("plain", 0)
	s.gone("plain")
	s.configTold("it sleeps", func(status v1alpha1.LauncherConfigStatus) bool { return status.Asleep == 1 })
}

func TestABoundLauncherStaysOnANodeThatIsNotSelectedAnyMoreUntilItIsUnbound(t *testing.T) {
	lane := laneOf(t)
	nodes := []string{cluster.NodeName(1), cluster.NodeName(2)}
	for name, deselect := range map[string]func(s *site, key string){
		"the nodes lose the label": func(s *site, key string) {
			for _, node := range nodes {
				s.kubectl("label", "node", node, key+"-")
			}
		},
		"the LauncherConfig selects other nodes": func(s *site, _ string) {
			s.eventually("the selector is changed", func() bool { // the controller writes the status meanwhile
				config := s.config()
				changed := config.DeepCopy()
				changed.Spec.Population.NodeSelector = map[string]string{"example.com/none": "yes"}
				return s.api.Patch(s.t.Context(), changed, client.MergeFrom(config)) == nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := fmt.Sprintf("example.com/launchers-%d", time.Now().UnixNano())
			for _, node := range nodes {
				_, err := lane.cluster.Kubectl(t.Context(), nil, "label", "node", node, key+"=yes")
				require.NoError(t, err)
				t.Cleanup(func() {
					_, err := lane.cluster.Kubectl(context.Background(), nil, "label", "node", node, key+"-")
					assert.NoError(t, err)
				})
			}
			s := newPool(t, func(c *v1alpha1.LauncherConfig) { c.Spec.Population.NodeSelector = map[string]string{key: "yes"} })
			s.allReady()
			s.deploy(server{app: "kept", node: 1}, 1)
			was := s.served("kept", 1)[0]
			s.answers("kept")
			launcher := s.poolPods()[nodes[0]]

			ask := s.askAll("kept")
			deselect(s, key)
			s.eventually("the launcher that nobody is bound to goes", func() bool { _, there := s.poolPods()[nodes[1]]; return !there })
			s.stays("the bound one stays", func() bool { return s.poolPods()[nodes[0]].UID == launcher.UID })
			late := s.start(server{app: "late", node: 1})
			s.told(late.Name, "gets no launcher of LauncherConfig simulated")
			assert.Len(t, s.records(launcher.Name), 1, "a new requester is not bound there")
			s.eventually("clients were answered meanwhile", func() bool { return ask.answered.Load() > 100 })
			assert.Empty(t, ask.stop())
			assert.Equal(t, was.UID, s.served("kept", 1)[0].UID)

			s.scale("kept", 0)
			s.gone("kept")
			s.eventually("it goes once it is unbound, though a requester waits", func() bool { return len(s.poolPods()) == 0 })
		})
	}
}
