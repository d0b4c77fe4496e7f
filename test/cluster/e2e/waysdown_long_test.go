//go:build cluster && clusterlong

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestANamespaceGoesAwayWithLaunchersAndRequestersThatServe(t *testing.T) {
	s := newSite(t)
	s.deploy(server{app: "awake", node: 1, gate: true}, 1)
	s.served("awake", 1)
	s.start(server{app: "slow", node: 1, args: []string{"--sim-load-time=1h"}})
	s.instance("launcher-node-1", "slow", "starting")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
	require.NoError(t, s.api.Delete(t.Context(), ns))
	s.eventually("the namespace is gone", func() bool {
		return apierrors.IsNotFound(s.api.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	})
}

func TestAModelThatEndsAgainSoonAfterItServedIsStartedLaterForTheNextRequester(t *testing.T) {
	s := newSite(t)
	s.onOneGPU()
	s.deploy(server{app: "crashing", node: 1}, 1)
	pod := s.shown("crashing")
	for range 2 {
		s.kill(s.instance("launcher-node-1", "crashing", "awake"))
		s.replaced("crashing", pod)
		pod = s.shown("crashing")
	}
	i := s.instance("launcher-node-1", "crashing", "awake")
	failures := podmeta.ReadFailures(s.pod("launcher-node-1"), i.InstanceID)
	require.NotNil(t, failures)
	assert.Equal(t, 2, failures.Count)
	assert.GreaterOrEqual(t, i.CreatedAt.Sub(failures.Last), 10*time.Second, "it was not started at once")
	s.eventually("an Event says why", func() bool {
		return strings.Contains(strings.Join(s.events(pod.Name), "\n"), "ended 2 times soon after it served")
	})
}
