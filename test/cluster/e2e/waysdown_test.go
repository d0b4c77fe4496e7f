//go:build cluster

package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/cluster"
)

func TestARequesterDeletedWhileItsModelStartsCancelsTheStart(t *testing.T) {
	s := newSite(t)
	s.start(server{app: "slow", node: 1, args: []string{"--sim-load-time=1h"}})
	s.instance("launcher-node-1", "slow", "starting")
	s.delete("slow")
	s.gone("slow")
	assert.Empty(t, s.instances(s.launcher("launcher-node-1")))
	s.free("launcher-node-1")
}

// watchAwake follows a launcher, and fails the test should two of its instances
// be awake at once.
func (s *site) watchAwake(launcher string) {
	c := s.launcher(launcher)
	list, err := c.List(s.t.Context())
	require.NoError(s.t, err)
	over := make(chan struct{})
	s.t.Cleanup(func() { <-over }) // the test's context has ended by then
	go func() {
		defer close(over)
		is := func(i launcherapi.Instance) bool {
			return i.State == "awake" || i.State == "waking" || i.State == "falling_asleep"
		}
		awake := map[string]bool{}
		for _, i := range list.Instances {
			awake[i.InstanceID] = is(i)
		}
		for event, err := range c.Watch(s.t.Context(), &list.Revision) {
			if err != nil {
				assert.Error(s.t, s.t.Context().Err(), "the launcher's events ended before the test: %v", err)
				return
			}
			awake[event.Object.InstanceID] = event.Type != launcherapi.EventDeleted && is(event.Object)
			n := 0
			for _, yes := range awake {
				if yes {
					n++
				}
			}
			assert.LessOrEqual(s.t, n, 1, "instances awake at once: %v", awake)
		}
	}()
}

func TestTheModelOfARequesterDeletedByForceSleepsBeforeTheNextOneWakes(t *testing.T) {
	s := newSite(t)
	s.onOneGPU()
	s.deploy(server{app: "next", node: 1}, 1) // its model is there, asleep, and waits for the GPU
	s.served("next", 1)
	s.scale("next", 0)
	s.gone("next")
	s.start(server{app: "forced", node: 1})
	s.served("forced", 1)
	s.watchAwake("launcher-node-1")
	s.scale("next", 1)
	s.vanish("forced")

	next := s.served("next", 1)[0]
	s.answers("next")
	s.instance("launcher-node-1", "forced", "sleeping")
	s.eventually("one record is left", func() bool { return len(s.records("launcher-node-1")) == 1 })
	assert.Equal(t, next.UID, s.records("launcher-node-1")[0].RequesterUID)
}

// vanish deletes a Pod by force, and takes its finalizers off too: the API server
// forgets the Pod at once.
func (s *site) vanish(name string) {
	s.t.Helper()
	s.delete(name, "--grace-period=0", "--force")
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = s.ns, name
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	require.NoError(s.t, client.IgnoreNotFound(s.api.Patch(s.t.Context(), pod, patch)))
	s.gone(name)
}

// As a StatefulSet makes them.
func TestARequesterUnderTheNameOfAnEarlierOneIsAnotherRequester(t *testing.T) {
	s := newSite(t)
	s.onOneGPU()
	s.service("again", map[string]string{"app": "again"})
	s.start(server{app: "again", node: 1})
	s.served("again", 1)
	was := s.instance("launcher-node-1", "again", "awake")
	s.watchAwake("launcher-node-1")
	for _, next := range []struct {
		model   string
		deleted func(name string)
	}{
		{"again", func(name string) { s.delete(name); s.gone(name) }},
		{"other", s.vanish},
		{"again", s.vanish},
	} {
		next.deleted("again")
		pod := s.start(server{app: "again", node: 1, patch: server{app: next.model}.serverPatch(t)})
		s.served("again", 1)
		address, model := s.address("again"), ""
		s.eventually(next.model+" answers", func() (answers bool) { // kube-proxy follows the Pod's readiness in a moment
			var err error
			model, err = s.ask(address, "org/"+next.model)
			return err == nil
		})
		assert.Equal(t, "org/"+next.model, model)
		s.eventually("one record is left", func() bool { return len(s.records("launcher-node-1")) == 1 })
		assert.Equal(t, pod.UID, s.records("launcher-node-1")[0].RequesterUID)
	}
	assert.Equal(t, was.InstanceID, s.instance("launcher-node-1", "again", "awake").InstanceID, "its model was woken, not started anew")
	s.instance("launcher-node-1", "other", "sleeping")
}

// askedAllTheTime has a client ask the model of an app through its Service, on
// connections of its own, until stop, which gives who answered, each once.
func (s *site) askedAllTheTime(app string) (stop func() (models []string)) {
	s.t.Helper()
	address := s.address(app)
	ctx, cancel := context.WithCancel(s.t.Context())
	var answered []string
	over := make(chan struct{})
	go func() {
		defer close(over)
		for ctx.Err() == nil {
			if model, err := s.askOnce(ctx, address, "org/"+app); err == nil && !slices.Contains(answered, model) {
				answered = append(answered, model)
			}
			select { // a Service without endpoints refuses at once
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() []string { cancel(); <-over; return answered }
}

func TestARequesterWhoseEngineIsKilledIsUnreadyAndNoEndpointAndThenReplaced(t *testing.T) {
	s := newSite(t)
	s.deploy(server{app: "other", node: 1}, 1)
	s.deploy(server{app: "victim", node: 1}, 1)
	s.served("other", 1)
	was := s.shown("victim")
	s.answers("victim")
	i := s.instance("launcher-node-1", "victim", "awake")
	deleted, early := false, false
	unfollow := s.follow(&was, func(p *corev1.Pod) {
		if p.DeletionTimestamp != nil && !deleted {
			proxy, err := s.proxy(p.Status.PodIP) // one that answers no more is not ready either
			deleted, early = true, err == nil && proxy.Ready
		}
	})
	unask := s.askedAllTheTime("victim")
	s.kill(i)
	s.eventually("its Service does not lead to it", func() bool { return !slices.Contains(s.endpoints("victim"), was.Status.PodIP) })
	now := s.replaced("victim", was)
	s.answers("victim")
	assert.Equal(t, []string{"org/victim"}, unask(), "nobody else's model answers meanwhile")
	s.eventually("the requester is gone", func() bool {
		return apierrors.IsNotFound(s.api.Get(t.Context(), client.ObjectKeyFromObject(&was), &corev1.Pod{}))
	})
	unfollow()
	assert.True(t, deleted)
	assert.False(t, early, "it was unready before it was deleted")
	assert.NotEqual(t, i.PID, s.instance("launcher-node-1", "victim", "awake").PID)
	s.eventually("the new requester alone is bound", func() bool {
		return !slices.ContainsFunc(s.records("launcher-node-1"), func(b podmeta.Binding) bool { return b.RequesterUID == was.UID })
	})
	assert.True(t, slices.ContainsFunc(s.records("launcher-node-1"), func(b podmeta.Binding) bool { return b.RequesterUID == now.UID }))
	s.eventually("an Event says why", func() bool { return len(s.events(was.Name)) > 0 })
}

func TestAModelThatSomebodyPutsToSleepIsWokenForItsRequester(t *testing.T) {
	s := newSite(t)
	s.deploy(server{app: "tired", node: 1, gate: true}, 1)
	was := s.served("tired", 1)[0]
	i := s.instance("launcher-node-1", "tired", "awake")
	_, err := s.launcher("launcher-node-1").Sleep(t.Context(), i.InstanceID, launcherapi.SleepRequest{})
	require.NoError(t, err)
	s.eventually("a second attempt is written down", func() bool { return s.records("launcher-node-1")[0].Attempt == 2 })
	now := s.served("tired", 1)[0]
	s.answers("tired")
	assert.Equal(t, was.UID, now.UID)
	assert.Equal(t, i.PID, s.instance("launcher-node-1", "tired", "awake").PID)
}

func TestARequesterIsReplacedWhenSomebodyDeletesItsInstance(t *testing.T) {
	s := newSite(t)
	s.deploy(server{app: "robbed", node: 1}, 1)
	was := s.shown("robbed")
	i := s.instance("launcher-node-1", "robbed", "awake")
	_, err := s.launcher("launcher-node-1").Delete(t.Context(), i.InstanceID)
	require.NoError(t, err)
	now := s.replaced("robbed", was)
	s.answers("robbed")
	s.eventually("the new requester alone is bound", func() bool {
		records := s.records("launcher-node-1")
		return len(records) == 1 && records[0].RequesterUID == now.UID
	})
}

func TestRequestersOfADeletedLauncherAreReplacedAndServedByTheNext(t *testing.T) {
	s := newSite(t)
	s.deploy(server{app: "moved", node: 1}, 1)
	was := s.served("moved", 1)[0]
	exit := int32(-1)
	stop := s.follow(&was, func(p *corev1.Pod) {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Terminated != nil {
				exit = c.State.Terminated.ExitCode
			}
		}
	})
	s.delete("launcher-node-1")
	s.eventually("the launcher is gone", func() bool { return len(s.launchers()) == 0 })
	s.addLauncher(1)
	now := s.replaced("moved", was)
	s.answers("moved")
	s.eventually("the requester is gone", func() bool {
		return apierrors.IsNotFound(s.api.Get(t.Context(), client.ObjectKeyFromObject(&was), &corev1.Pod{}))
	})
	stop()
	assert.Zero(t, exit, "the requester program was unbound, and ended by itself")
	records := s.records("launcher-node-1")
	require.Len(t, records, 1)
	assert.Equal(t, now.UID, records[0].RequesterUID)
}

// launchers are the launcher Pods.
func (s *site) launchers() []corev1.Pod {
	s.t.Helper()
	var list corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &list, client.InNamespace(s.ns), client.HasLabels{"hotseat.dev/launcher-config"}))
	return list.Items
}

func TestARequesterWhoseNodeIsCordonedBeforeItIsServedIsDeleted(t *testing.T) {
	s := newBareSite(t)
	s.start(server{app: "early", node: 1})
	s.eventually("the requester runs", func() bool { return s.pod("early").Status.Phase == corev1.PodRunning })
	s.kubectl("cordon", cluster.NodeName(1))
	t.Cleanup(func() {
		_, err := s.cluster.Kubectl(context.WithoutCancel(t.Context()), nil, "uncordon", cluster.NodeName(1))
		assert.NoError(t, err)
	})
	s.gone("early")
	s.eventually("an Event says why", func() bool { return len(s.events("early")) > 0 })
}
