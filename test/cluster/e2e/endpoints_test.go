//go:build cluster

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// led makes a Service of port 8000 whose EndpointSlices the controller keeps.
func (s *site) led(app string) {
	s.t.Helper()
	require.NoError(s.t, s.api.Create(s.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: app, Annotations: map[string]string{podmeta.AnnotationEndpoints: "app=" + app}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 8000}}},
	}))
}

// endpointsTold waits until the condition of a Service about its endpoints is so.
func (s *site) endpointsTold(app, what string, so func(*metav1.Condition) bool) *corev1.Service {
	s.t.Helper()
	var service corev1.Service
	s.eventually(app+": "+what, func() bool {
		return s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: app}, &service) == nil &&
			so(meta.FindStatusCondition(service.Status.Conditions, podmeta.ConditionEndpoints))
	})
	return &service
}

// TestSliceHasARequesterWhenItsModelIsAwake has a requester that the kubelet does not probe for
// minutes.
func TestSliceHasARequesterWhenItsModelIsAwake(t *testing.T) {
	s := newSite(t)
	s.led("led")
	template := server{app: "led", node: 1}.template(t)
	template.Spec.Containers[0].ReadinessProbe.InitialDelaySeconds = 600
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = s.ns, "led"
	require.NoError(t, s.api.Create(t.Context(), pod))
	leads := func() bool { return len(s.endpoints("led")) == 1 }
	s.eventually("the slice has the requester", leads)
	awake := s.instance("launcher-node-1", "led", "awake")
	pod = s.pod("led")
	assert.Equal(t, []string{pod.Status.PodIP}, s.endpoints("led"))
	assert.False(t, readyPod(pod), "the kubelet has not looked yet")
	s.answers("led")

	// The model is put to sleep by somebody: the slice says so afterwards, until it is awake again.
	_, err := s.launcher("launcher-node-1").Sleep(t.Context(), awake.InstanceID, launcherapi.SleepRequest{})
	require.NoError(t, err)
	s.eventually("the next attempt", func() bool { return s.records("launcher-node-1")[0].Attempt == 2 })
	s.eventually("the slice has the requester again", leads)
	s.answers("led")

	s.kubectl("annotate", "service/led", "--overwrite", podmeta.AnnotationEndpoints+"=app in (led")
	wrong := s.endpointsTold("led", "its annotation is wrong", func(c *metav1.Condition) bool {
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == "InvalidSelector" && strings.Contains(c.Message, "write one such as app=llama")
	})
	s.eventually("an Event tells", func() bool { return s.event(wrong.UID, "is no label selector") })
	s.eventually("its slice is gone", func() bool { return len(s.endpoints("led")) == 0 })
	s.kubectl("annotate", "service/led", "--overwrite", podmeta.AnnotationEndpoints+"=app=led")
	s.endpointsTold("led", "its annotation is right", func(c *metav1.Condition) bool { return c != nil && c.Status == metav1.ConditionTrue })
	s.eventually("the slice has the requester", leads)
	s.answers("led")

	s.delete("led")
	s.gone("led")
	assert.Empty(t, s.endpoints("led"))
	s.instance("launcher-node-1", "led", "sleeping")
}

// TestNoConnectionReachesASleepingModel scales requesters down and up while clients ask the
// Service whose slices the controller keeps.
func TestNoConnectionReachesASleepingModel(t *testing.T) {
	const app = "led"
	s := newSite(t)
	s.led(app)
	s.deployment(server{app: app, node: 1, delay: usualDelay}, 2)
	s.eventually("the slice has both requesters", func() bool { return len(s.endpoints(app)) == 2 })
	s.answers(app)
	asking := s.askAll(app)
	for range 3 {
		list, err := s.launcher("launcher-node-1").List(t.Context())
		require.NoError(t, err)
		before := s.served(app, 2)
		s.scale(app, 1)
		ip := s.sleepsOf(app, before, list.Revision)
		assert.NotContains(t, s.endpoints(app), ip, "a slice leads to a model that falls asleep")
		s.scale(app, 2)
		s.eventually("the slice has both requesters", func() bool { return len(s.endpoints(app)) == 2 })
		s.eventually("clients go on asking", s.more(asking))
	}
	lost := asking.stop()
	t.Logf("lost: %d of %d requests", len(lost), int(asking.answered.Load())+len(lost))
	assert.Empty(t, lost)
	s.scale(app, 0)
	s.gone(app)
}

// sleepsOf waits until an instance of an app begins to fall asleep, and returns the address of
// the requester that it served.
func (s *site) sleepsOf(app string, requesters []corev1.Pod, since uint64) (ip string) {
	s.t.Helper()
	bound := s.records("launcher-node-1")
	for e, err := range s.launcher("launcher-node-1").Watch(s.t.Context(), &since) {
		require.NoError(s.t, err)
		if e.Object.Model != "org/"+app || e.Object.State != "falling_asleep" {
			continue
		}
		at := slices.IndexFunc(bound, func(b podmeta.Binding) bool { return b.Instance == e.Object.InstanceID })
		require.GreaterOrEqual(s.t, at, 0)
		pod := slices.IndexFunc(requesters, func(p corev1.Pod) bool { return p.UID == bound[at].RequesterUID })
		require.GreaterOrEqual(s.t, pod, 0)
		return requesters[pod].Status.PodIP
	}
	require.Fail(s.t, "no model falls asleep")
	return ""
}
