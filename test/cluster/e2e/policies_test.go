//go:build cluster && policies

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// dial connects from where somebody is.
type dial func(ctx context.Context, network, address string) (net.Conn, error)

// from is how a Pod dials.
func from(t *testing.T, pod string) dial {
	t.Helper()
	ns := laneOf(t).networkOf(t, pod)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialIn(ctx, ns, network, address)
	}
}

// reaches says whether somebody does. kube-router refuses what it does not let
// through; all the same nobody is refused anywhere where nobody listens.
func reaches(t *testing.T, by dial, address string) bool {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience.Wait())
	defer stop()
	conn, err := by(ctx, "tcp", address)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return false
	}
	require.NoError(t, err, address)
	require.NoError(t, conn.Close())
	return true
}

func TestTheChartsNetworkPoliciesLetThroughWhoIsMeantAndNobodyElse(t *testing.T) {
	require.NotEmpty(t, laneOf(t).cluster.Router, "the cluster is to be one that enforces NetworkPolicies: make test-cluster-policies")
	s, monitoring := newPool(t, nil), newBareSite(t)
	s.allReady()
	s.deploy(server{app: "model-a", node: 1}, 1)
	s.deploy(server{app: "model-b", node: 1}, 0)
	requester, launcher := s.served("model-a", 1)[0], s.poolPods()[cluster.NodeName(1)]
	instance := s.instances(s.launcher(launcher.Name))["org/model-a"]
	var controllers corev1.PodList
	require.NoError(t, s.api.List(t.Context(), &controllers, client.InNamespace(system), client.MatchingLabels{"app.kubernetes.io/component": "controller"}))
	require.Len(t, controllers.Items, 1)
	controller := controllers.Items[0]

	callers := map[string]dial{
		"the controller": from(t, controller.Name), "the requester": from(t, requester.Name),
		"a Pod beside it": s.stranger(s.ns), "a Pod of another namespace": monitoring.stranger(monitoring.ns),
	}
	control, agent := launcher.Status.PodIP+":8001", s.agent(1).Status.PodIP+":8002"
	model := fmt.Sprintf("%s:%d", launcher.Status.PodIP, instance.Port)
	metrics, orders := controller.Status.PodIP+":8080", requester.Status.PodIP+":8081"
	everybody := []string{"the controller", "the requester", "a Pod beside it", "a Pod of another namespace"}
	check := func(let map[string][]string) {
		t.Helper()
		for address, who := range let {
			for name, caller := range callers {
				assert.Equal(t, slices.Contains(who, name), reaches(t, caller, address), "%s reaches %s", name, address)
			}
		}
	}
	check(map[string][]string{control: everybody, agent: everybody, model: everybody, metrics: everybody})

	t.Cleanup(func() { assert.NoError(t, s.install(context.Background())) })
	require.NoError(t, s.install(t.Context(), "networkPolicy.enabled=true", "networkPolicy.namespaces={"+s.ns+"}",
		"networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name="+monitoring.ns))
	s.eventually("the policies are enforced", func() bool {
		return !reaches(t, callers["a Pod of another namespace"], model) && !reaches(t, callers["the requester"], metrics)
	})
	check(map[string][]string{
		control:                           {"the controller", "a Pod of another namespace"}, // which scrapes its metrics; orders take a certificate
		agent:                             {"the controller"},
		model:                             {"the requester", "a Pod beside it"},             // that of its namespace
		metrics:                           {"a Pod of another namespace", "the controller"}, // whose own they are
		orders:                            everybody,                                        // certificates keep these
		controller.Status.PodIP + ":9443": everybody,                                        // no policy can name the API server, which asks there
	})
	s.answers("model-a")
	s.scale("model-a", 0)
	s.scale("model-b", 1)
	s.served("model-b", 1)
	s.answers("model-b")
	_, err := s.cluster.Helm(t.Context(), "test", "hotseat", "--namespace", system, "--timeout", patience.Wait().String())
	require.NoError(t, err)
}
