//go:build cluster

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// uninstalled takes the chart away, and has it installed again at the test's end.
func (s *site) uninstalled(values ...string) {
	s.t.Helper()
	s.t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 2*patience.Wait())
		defer stop()
		assert.NoError(s.t, s.install(ctx), "the chart is installed again")
	})
	if len(values) > 0 {
		require.NoError(s.t, s.install(s.t.Context(), values...))
	}
	_, err := s.cluster.Helm(s.t.Context(), "uninstall", "hotseat", "--namespace", system, "--wait", "--timeout", patience.Wait().String())
	require.NoError(s.t, err)
}

func TestTheChartRefusesValuesThatMeanNothing(t *testing.T) {
	for value, says := range map[string]string{
		"controller.replicas=0":         "at '/controller/replicas': minimum: got 0, want 1",
		"controler.replicas=1":          "additional properties 'controler' not allowed",
		"image.pullPolicy=Sometimes":    "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'",
		"watchNamespace=A_b":            "at '/watchNamespace': 'A_b' does not match",
		"uninstall.engines=kill":        "at '/uninstall/engines': value must be one of 'leave', 'stop'",
		"controller.drainTimeout=ten":   "at '/controller/drainTimeout': 'ten' does not match",
		"trust.requireRequesters=maybe": "at '/trust/requireRequesters': got string, want boolean",
		"metrics.port=70000":            "at '/metrics/port': maximum: got 70,000, want 65,535",
		"controller.enabled=false":      "at '/admissionPolicy/enabled': value must be false",
		"launcherConfig.create=true":    "launcherConfig.spec: a LauncherConfig takes a podTemplate",
		"agent.kubeletDir=kubelet":      "at '/agent/kubeletDir': 'kubelet' does not match",
		"controller.writeAhead=maybe":   "at '/controller/writeAhead': got string, want boolean",
		"agent.nodeSelector.gpu=1":      "at '/agent/nodeSelector/gpu': got number, want string",
		"metrics.port=8082":             "at '/metrics/port'",
		"metrics.port=9443":             "at '/metrics/port'",
		"controller=null":               "missing property 'controller'",
		"uninstall.deleteCRDs=true":     "at '/uninstall/engines': value must be 'stop'",
		"uninstall.deleteCRDs=true,uninstall.engines=stop,watchNamespace=a": "at '/watchNamespace': value must be ''",
		"networkPolicy.enabled=true":                                        "networkPolicy.namespaces: say in which namespaces launchers are",
		"networkPolicy.enabled=true,networkPolicy.namespaces={a},networkPolicy.instancePorts.first=60000,networkPolicy.instancePorts.last=40000": "networkPolicy.instancePorts: last is 40000, and first 60000",
		"frontDoor.externalScaler=true":   "frontDoor.externalScaler: name the Secret with certificates",
		"metrics.podMonitor.enabled=true": "metrics.podMonitor.selector: say which Pods are requesters",
	} {
		_, err := laneOf(t).cluster.Helm(t.Context(), "template", "x", root("deploy/chart"), "--set", value)
		assert.ErrorContains(t, err, says, value)
	}
}

func TestTwoReleasesThatWouldLookAtTheSameNamespacesAreRefused(t *testing.T) {
	for _, more := range [][]string{nil, {"--set", "watchNamespace=default"}} {
		_, err := laneOf(t).cluster.Helm(t.Context(), append([]string{"install", "second", root("deploy/chart"), "--namespace", "e2e-second", "--create-namespace"}, more...)...)
		assert.ErrorContains(t, err, "the release hotseat in namespace hotseat-system has hotseat look at all namespaces already: uninstall that one first, or have each look at a namespace of its own")
	}
	require.NoError(t, client.IgnoreNotFound(laneOf(t).api.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "e2e-second"}})))
}

func TestAnUpgradeThatWouldLeaveThingsHalfMadeIsRefused(t *testing.T) {
	for values, says := range map[string]string{
		"controller.enabled=false,admissionPolicy.enabled=false,apiPriority.enabled=false,metrics.service.enabled=false": "this release has a controller, which holds requesters and launchers by finalizers: uninstall it",
		"watchNamespace=e2e-nowhere":                                        "watchNamespace: there is no namespace e2e-nowhere: make it first",
		"networkPolicy.enabled=true,networkPolicy.namespaces={e2e-nowhere}": "networkPolicy.namespaces: there is no namespace e2e-nowhere: make it first",
	} {
		_, err := laneOf(t).cluster.Helm(t.Context(), "upgrade", "hotseat", root("deploy/chart"), "--namespace", system, "--reuse-values", "--dry-run=server", "--set", values)
		assert.ErrorContains(t, err, says, values)
	}
}

func TestUninstallLetsGoOfAllPodsAndEnginesGoOnUntilTheNextInstallation(t *testing.T) {
	s := newPool(t, nil)
	s.deploy(talker(), 1)
	pod := s.served("talker", 1)[0]
	answer := s.listen(&pod)
	launchers := s.launchers()
	at := slices.IndexFunc(launchers, func(l corev1.Pod) bool { return l.Spec.NodeName == pod.Spec.NodeName })
	require.GreaterOrEqual(t, at, 0)
	launcher := &launchers[at]
	cache := &v1alpha1.ClusterModelCache{ObjectMeta: metav1.ObjectMeta{Name: s.ns}, Spec: v1alpha1.ClusterModelCacheSpec{
		Source: v1alpha1.ModelSource{URI: "hf://org/none"}, NodeGroups: []string{"none"},
	}}
	require.NoError(t, s.api.Create(t.Context(), cache))
	t.Cleanup(func() { assert.NoError(t, s.api.Delete(context.Background(), cache)) })
	finalizers := func() []string {
		require.NoError(t, s.api.Get(t.Context(), client.ObjectKeyFromObject(cache), cache))
		return cache.Finalizers
	}
	s.eventually("the model cache is held", func() bool { return len(finalizers()) == 1 })
	s.uninstalled()
	s.nothingIsHeld()
	assert.Empty(t, finalizers(), "nor is a model cache")
	answer.goesOn()
	assert.Empty(t, strings.TrimSpace(s.kubectl("get", "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingwebhookconfigurations,flowschemas"+s.mutatingPolicies(), "-l", "app.kubernetes.io/name=hotseat", "-o", "name")), "nothing of the chart is left")

	require.NoError(t, s.install(t.Context()))
	s.eventually("the requester is held again", func() bool { return podmeta.Held(s.pod(pod.Name)) })
	s.eventually("and its launcher", func() bool {
		return slices.Contains(s.pod(launcher.Name).Finalizers, podmeta.FinalizerProvider)
	})
	s.eventually("and the model cache", func() bool { return len(finalizers()) == 1 })
	answer.goesOn()
	assert.Equal(t, launcher.UID, s.pod(launcher.Name).UID, "the launcher is the same")
	assert.Equal(t, pod.UID, s.served("talker", 1)[0].UID)
}

// TestFromNothingToTheFirstAnswer logs how long it takes from `helm install`, with
// images present, to the first answer of the first model.
func TestFromNothingToTheFirstAnswer(t *testing.T) {
	s := newBareSite(t)
	s.uninstalled("uninstall.engines=stop")
	begun := time.Now()
	require.NoError(t, s.install(t.Context()))
	installed := time.Since(begun)
	s.addPool(nil)
	s.deploy(server{app: "first", node: 1}, 1)
	s.answers("first")
	t.Logf("from nothing to the first answer: %.1f s, of which helm install took %.1f s", time.Since(begun).Seconds(), installed.Seconds())
}

// notes are what helm tells the user about a release.
func notes(t *testing.T, release, namespace string) string {
	t.Helper()
	out, err := laneOf(t).cluster.Helm(t.Context(), "get", "notes", release, "--namespace", namespace)
	require.NoError(t, err)
	return string(out)
}

// commandsOf are the commands in notes: lines that begin with one of the programs.
func commandsOf(notes string) (commands [][]string) {
	for line := range strings.Lines(notes) {
		if words := strings.Fields(line); len(words) > 0 && (words[0] == "kubectl" || words[0] == "helm") {
			commands = append(commands, words)
		}
	}
	return commands
}

// run runs a command that notes have told.
func run(t *testing.T, words []string) string {
	t.Helper()
	call := laneOf(t).cluster.Helm
	if words[0] == "kubectl" {
		call = func(ctx context.Context, args ...string) ([]byte, error) {
			return laneOf(t).cluster.Kubectl(ctx, nil, args...)
		}
	}
	out, err := call(t.Context(), words[1:]...)
	require.NoError(t, err)
	return string(out)
}

func TestTheExampleForNodesWithGPUsIsTakenByTheAPIServer(t *testing.T) {
	out, err := laneOf(t).cluster.Kubectl(t.Context(), nil, "apply", "--dry-run=server", "-f", root("examples/gpu"))
	require.NoError(t, err)
	assert.Contains(t, string(out), "launcherconfig.hotseat.dev/vllm created (server dry run)")
	assert.Contains(t, string(out), "deployment.apps/llama created (server dry run)")
}

func TestTheCommandsThatTheNotesTellWork(t *testing.T) {
	told := notes(t, "hotseat", system)
	assert.True(t, strings.HasPrefix(strings.TrimPrefix(told, "NOTES:\n"), "hotseat dev watches all namespaces."), told)
	commands := commandsOf(told)
	assert.Len(t, commands, 5, told)
	for _, words := range commands {
		run(t, words)
	}
}

// TestAReleaseWithoutAControllerHasItsLauncherConfigServedByThatOfAnother is about a
// team's namespace.
func TestAReleaseWithoutAControllerHasItsLauncherConfigServedByThatOfAnother(t *testing.T) {
	s := newBareSite(t)
	text, err := os.ReadFile(root("examples/dual-pods/launcherconfig.yaml"))
	require.NoError(t, err)
	var config v1alpha1.LauncherConfig
	require.NoError(t, yaml.UnmarshalStrict(text, &config))
	spec, err := json.Marshal(config.Spec)
	require.NoError(t, err)
	_, err = s.cluster.Helm(t.Context(), "install", "team", root("deploy/chart"), "--namespace", s.ns, "--wait", "--timeout", patience.Wait().String(), "--set", "controller.enabled=false",
		"--set", "admissionPolicy.enabled=false", "--set", "apiPriority.enabled=false", "--set", "metrics.service.enabled=false",
		"--set", "launcherConfig.create=true", "--set", "launcherConfig.name=simulated", "--set-json", "launcherConfig.spec="+string(spec))
	require.NoError(t, err)
	s.allReady()
	commands := commandsOf(notes(t, "team", s.ns))
	require.Len(t, commands, 1)
	assert.Contains(t, run(t, commands[0]), "simulated")
	s.deploy(server{app: "model-a", node: 1}, 1)
	s.served("model-a", 1)
	_, err = s.cluster.Helm(t.Context(), "uninstall", "team", "--namespace", s.ns, "--wait", "--timeout", patience.Wait().String())
	require.NoError(t, err)
	s.answers("model-a") // whose launchers hold models: the LauncherConfig stays
	s.kubectl("get", "lcfg/simulated")
}

// nothingIsHeld says that no Pod of the namespace has a finalizer.
func (s *site) nothingIsHeld() {
	s.t.Helper()
	var pods corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &pods, client.InNamespace(s.ns)))
	for _, pod := range pods.Items {
		assert.Empty(s.t, pod.Finalizers, pod.Name)
	}
}
