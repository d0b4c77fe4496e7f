//go:build cluster && clusterlong

package e2e

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestAnUpgradeDisturbsNothingThatIsAwakeAndBringsTheDefinitionsUpToDate(t *testing.T) {
	s := newPool(t, nil)
	s.deploy(talker(), 1)
	pod := s.served("talker", 1)[0]
	answer := s.listen(&pod)
	// A definition of an earlier version, which Helm itself would leave as it is.
	column := "jsonpath={.spec.versions[0].additionalPrinterColumns[0].name}"
	s.kubectl("patch", "crd", "launcherconfigs.hotseat.dev", "--type=json", `-p=[{"op":"remove","path":"/spec/versions/0/additionalPrinterColumns"}]`)
	require.Empty(t, s.kubectl("get", "crd", "launcherconfigs.hotseat.dev", "-o", column))

	require.NoError(t, s.install(t.Context(), "controller.logLevel=debug"))
	t.Cleanup(func() { assert.NoError(t, s.install(context.Background())) })
	assert.Equal(t, "Mode", s.kubectl("get", "crd", "launcherconfigs.hotseat.dev", "-o", column))
	_, err := s.cluster.Helm(t.Context(), "test", "hotseat", "--namespace", system, "--timeout", patience.Wait().String())
	require.NoError(t, err, "the installation works")
	answer.goesOn()
	_, err = s.cluster.Helm(t.Context(), "rollback", "hotseat", "--namespace", system, "--wait", "--timeout", patience.Wait().String())
	require.NoError(t, err)
	answer.goesOn()
	again := s.served("talker", 1)[0]
	assert.Equal(t, pod.UID, again.UID, "the requester is the same")
	s.deploy(server{app: "next", node: 1}, 1)
	s.served("next", 1)
}

func TestUninstallStopsLaunchersAndEnginesWhereThatIsAskedFor(t *testing.T) {
	s := newPool(t, nil)
	s.deploy(server{app: "talker", node: 1}, 1)
	pod := s.served("talker", 1)[0]
	s.uninstalled("uninstall.engines=stop")
	assert.Empty(t, s.launchers())
	s.nothingIsHeld()
	s.eventually("the requester is replaced", func() bool {
		pods := s.pods("talker")
		return len(pods) == 1 && pods[0].UID != pod.UID && !readyPod(&pods[0])
	})
	s.kubectl("get", "lcfg/simulated") // what users wrote is theirs

	require.NoError(t, s.install(t.Context()))
	s.served("talker", 1)
	s.answers("talker")
}

func TestTheChartIsInstalledWithEveryOptionOn(t *testing.T) {
	s := newBareSite(t)
	monitors(t)
	t.Cleanup(func() { assert.NoError(t, s.install(context.Background())) }) // before the definitions go
	require.NoError(t, s.install(t.Context(), "controller.replicas=2", "controller.logLevel=debug",
		"controller.podAnnotations.example\\.com/team=serving", "controller.podLabels.team=serving",
		"admissionPolicy.admins.users={alice}", "trust.requireRequesters=true",
		"metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.labels.release=prometheus",
		"metrics.launcherMonitor.enabled=true", "metrics.podMonitor.enabled=true", "metrics.podMonitor.labels.release=prometheus", "metrics.podMonitor.selector.matchLabels.app=first",
		"dashboards.enabled=true", "networkPolicy.enabled=true", "networkPolicy.namespaces={"+s.ns+"}",
		"networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.team=monitoring", "uninstall.engines=stop"))
	names := s.kubectl("-n", system, "get", "servicemonitors,podmonitors,poddisruptionbudgets,configmaps,networkpolicies", "-o", "name")
	for _, want := range []string{"servicemonitor.monitoring.coreos.com/hotseat-controller", "podmonitor.monitoring.coreos.com/hotseat-requesters",
		"poddisruptionbudget.policy/", "configmap/hotseat-dashboards", "networkpolicy.networking.k8s.io/"} {
		assert.Contains(t, names, want)
	}
	assert.Equal(t, "8080", s.kubectl("-n", system, "get", "podmonitor/hotseat-requesters", "-o", "jsonpath={.spec.podMetricsEndpoints[0].portNumber}"))
	_, err := s.cluster.Helm(t.Context(), "test", "hotseat", "--namespace", system, "--timeout", patience.Wait().String())
	require.NoError(t, err)
	s.apply("examples/dual-pods/launcherconfig.yaml")
	s.apply("examples/dual-pods/requesters.yaml")
	s.served("model-a", 1)
	s.answers("model-a")
}

// monitors makes the definitions of ServiceMonitor and PodMonitor known to the API
// server, until the test's end.
func monitors(t *testing.T) {
	t.Helper()
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/prometheus-operator/prometheus-operator@v0.84.0")
	download.Dir = t.TempDir() // no package is used, so that no go.mod can name the module
	out, err := download.Output()
	require.NoError(t, err, "%s", out)
	var found struct{ Dir, Sum string }
	require.NoError(t, json.Unmarshal(out, &found))
	require.Equal(t, "h1:XXm7lKizTnnxeSwI01wjNAapKzw/4XAPdpcZqjRKgRU=", found.Sum)
	for _, kind := range []string{"servicemonitors", "podmonitors"} {
		require.NoError(t, laneOf(t).applyFile(t.Context(), "", filepath.Join(found.Dir, "example", "prometheus-operator-crd", "monitoring.coreos.com_"+kind+".yaml")))
		t.Cleanup(func() {
			_, err := laneOf(t).cluster.Kubectl(context.Background(), nil, "delete", "crd", kind+".monitoring.coreos.com")
			assert.NoError(t, err)
		})
	}
}
