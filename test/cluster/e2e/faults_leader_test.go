//go:build cluster

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

const (
	controllers       = "hotseat-controller" // the controller's Deployment, and its Lease
	controllerProgram = "^/controller "      // its command line
)

// lease is the Lease of the controller's replicas.
func (s *site) lease() (lease coordinationv1.Lease) {
	s.t.Helper()
	require.NoError(s.t, api.Get(s.t.Context(), client.ObjectKey{Namespace: system, Name: controllers}, &lease))
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
	require.NoError(s.t, api.List(s.t.Context(), &pods, client.InNamespace(system), client.MatchingLabels{"app.kubernetes.io/component": "controller"}))
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

// anotherLeads deletes the controller's Pod, and waits until another one leads.
func (s *site) anotherLeads() {
	s.t.Helper()
	pod, was := s.controller(), s.leader()
	require.NoError(s.t, api.Delete(s.t.Context(), &pod))
	s.eventually("another controller leads", func() bool { now := s.leader(); return now != "" && now != was })
}

// killController ends the controller of a Pod by SIGKILL.
func (s *site) killController(pod corev1.Pod) {
	s.t.Helper()
	s.signalProcess(pod.Spec.NodeName, "KILL", controllerProgram, 0, "HOSTNAME="+pod.Name)
}

// twoControllers gives the controller a second replica until the test ends.
func (s *site) twoControllers() {
	s.t.Helper()
	scale := func(ctx context.Context, n int) {
		_, err := shared.Kubectl(ctx, nil, "-n", system, "scale", "deployment/"+controllers, fmt.Sprintf("--replicas=%d", n))
		assert.NoError(s.t, err)
	}
	scale(s.t.Context(), 2)
	s.t.Cleanup(func() { scale(context.Background(), 1) })
	s.eventually("two controllers are ready", func() bool {
		pods := s.controllers()
		return len(pods) == 2 && readyPod(&pods[0]) && readyPod(&pods[1])
	})
}

func TestTheOtherControllerGoesOnWhenTheLeaderIsKilledInTheMiddleOfASwap(t *testing.T) {
	s := newSite(t)
	s.twoControllers()
	s.deploy(server{app: "steady", node: 1}, 1)
	steady := s.served("steady", 1)[0]
	awake := s.instance("launcher-node-1", "steady", "awake")
	s.deploy(server{app: "slow", node: 1, args: []string{"--sim-load-time=3s"}}, 1)
	starting := s.instance("launcher-node-1", "slow", "starting")

	was := s.controller()
	s.killController(was)
	killed := time.Now()
	require.NoError(t, api.Delete(t.Context(), &was)) // or its container would be started again, and lead
	s.eventually("the other one leads", func() bool {
		now := s.leader()
		return now != "" && !strings.HasPrefix(now, was.Name+"_")
	})
	t.Logf("another controller led %.1f s after the leader was killed", time.Since(killed).Seconds())
	s.served("slow", 1)
	s.answers("slow")
	s.startedOnce(starting, "slow")
	assert.Equal(t, steady.UID, s.served("steady", 1)[0].UID)
	assert.Equal(t, awake.Revision, s.instance("launcher-node-1", "steady", "awake").Revision, "nobody touched it")
	s.scale("slow", 0)
	s.gone("slow")
	s.instance("launcher-node-1", "slow", "sleeping")
}

// startedOnce says that an instance that was seen before is the only one of its
// app, was started once, for the one record of it, and by the first attempt.
func (s *site) startedOnce(seen launcherapi.Instance, app string) {
	s.t.Helper()
	now := s.instances(s.launcher("launcher-node-1"))["org/"+app]
	assert.Equal(s.t, seen.InstanceID, now.InstanceID)
	assert.Equal(s.t, seen.CreatedAt, now.CreatedAt, "it was started once")
	var records []podmeta.Binding
	for _, b := range s.records("launcher-node-1") {
		if b.Instance == seen.InstanceID {
			records = append(records, b)
		}
	}
	require.Len(s.t, records, 1)
	assert.Equal(s.t, 1, records[0].Attempt)
}
