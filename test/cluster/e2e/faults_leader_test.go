//go:build cluster

package e2e

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/test/cluster"
)

const (
	controllers       = "hotseat-controller" // the controller's Deployment, and its Lease
	controllerProgram = "^/controller "      // its command line
)

// lease is the Lease of the controller's replicas.
func (s *site) lease() (lease coordinationv1.Lease) {
	s.t.Helper()
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: system, Name: controllers}, &lease))
	return lease
}

// leader is the replica that leads, as its Pod's name and UID; empty: none.
func (s *site) leader() string {
	s.t.Helper()
	if holder := s.lease().Spec.HolderIdentity; holder != nil {
		return *holder
	}
	return ""
}

// controllers are the Pods of the controller that are not being deleted.
func (s *site) controllers() (living []corev1.Pod) {
	s.t.Helper()
	var pods corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &pods, client.InNamespace(system), client.MatchingLabels{"app.kubernetes.io/component": "controller"}))
	for _, p := range pods.Items {
		if p.DeletionTimestamp.IsZero() {
			living = append(living, p)
		}
	}
	return living
}

// controller is the Pod of the controller that leads.
func (s *site) controller() (leading corev1.Pod) {
	s.t.Helper()
	s.eventually("a controller leads", func() bool {
		leader := s.leader()
		for _, p := range s.controllers() {
			if leader == p.Name+"_"+string(p.UID) {
				leading = p
				return true
			}
		}
		return false
	})
	return leading
}

// killController ends the controller of a Pod by SIGKILL.
func (s *site) killController(pod corev1.Pod) {
	s.t.Helper()
	s.signalController(s.t.Context(), pod, "KILL")
}

// signalController sends the controller of a Pod a signal, named as kill names it.
func (s *site) signalController(ctx context.Context, pod corev1.Pod, signal string) {
	s.t.Helper()
	number := 0
	_, err := fmt.Sscanf(pod.Spec.NodeName, "node-%d", &number)
	require.NoError(s.t, err)
	_, err = s.cluster.Signal(ctx, number, signal, cluster.Process{CommandLine: controllerProgram, Variable: "HOSTNAME=" + pod.Name})
	require.NoError(s.t, err)
}
