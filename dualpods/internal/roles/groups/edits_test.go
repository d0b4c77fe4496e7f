package groups

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

// edited changes an object of the name of the entry, as somebody else may.
func edited[O client.Object](s *site, o O, how func(O)) {
	s.t.Helper()
	require.True(s.t, s.read(entry, o))
	how(o)
	require.NoError(s.t, s.api.Update(s.t.Context(), o))
}

func TestServiceThatOthersChangeIsRepairedAndTold(t *testing.T) {
	for name, how := range map[string]func(*corev1.Service){
		"a selector": func(o *corev1.Service) { o.Spec.Selector = map[string]string{"app": "theirs"} },
		"ports":      func(o *corev1.Service) { o.Spec.Ports = []corev1.ServicePort{{Port: 80}} },
		"ready ones": func(o *corev1.Service) { o.Spec.PublishNotReadyAddresses = false },
		"another name": func(o *corev1.Service) {
			o.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
		},
		"external IPs":   func(o *corev1.Service) { o.Spec.ExternalIPs = []string{"192.0.2.1"} },
		"a label":        func(o *corev1.Service) { o.Labels[podmeta.LabelServingRole] = "decode" },
		"no labels left": func(o *corev1.Service) { o.Labels = nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, nil, nil)
			s.settle()
			var before, after corev1.Service
			require.True(t, s.read(entry, &before))
			edited(s, &corev1.Service{}, how)
			s.passes(3)
			require.True(t, s.read(entry, &after))
			assert.Equal(t, name == "a selector", before.UID != after.UID, "slices that were made by a selector go with the Service")
			assert.Equal(t, []any{before.Spec, before.Labels}, []any{after.Spec, after.Labels})
			s.told("EditedByOthers somebody else has changed Service " + entry + ", and the controller has undone it")
			assert.Empty(t, s.events.Events)
		})
	}
	s := newSite(t, nil, nil)
	s.settle()
	edited(s, &corev1.Service{}, func(o *corev1.Service) { o.Annotations, o.Labels["theirs"] = map[string]string{"a": "b"}, "stays" })
	version := func() string {
		var o corev1.Service
		require.True(t, s.read(entry, &o))
		return o.ResourceVersion
	}
	before := version()
	s.passes(2)
	assert.Equal(t, before, version(), "annotations and labels of others stay")
}

// TestProgramThatChangesASliceAgainAndAgainIsUndoneWithPauses has another writer undo each write at once.
func TestProgramThatChangesASliceAgainAndAgainIsUndoneWithPauses(t *testing.T) {
	s := newSite(t, nil, nil)
	s.ports = map[string]int{"i": 40000}
	s.settle()
	s.bind(entry)
	s.passes(2)
	spoil := func() {
		edited(s, &discoveryv1.EndpointSlice{}, func(o *discoveryv1.EndpointSlice) {
			o.Endpoints, o.Labels["theirs"] = nil, "stays"
		})
	}
	leads := func() bool {
		var o discoveryv1.EndpointSlice
		require.True(t, s.read(entry, &o))
		assert.Equal(t, "stays", o.Labels["theirs"])
		return len(o.Endpoints) == 1
	}
	writes, since := 0, s.now
	for s.now.Sub(since) < time.Hour { // it is undone as soon as it was written
		spoil()
		last := s.passes(1)
		if leads() {
			writes++
			if writes > 1 {
				s.told("EditedByOthers somebody else has changed EndpointSlice " + entry)
			}
			continue
		}
		require.Positive(t, last.RequeueAfter, "it looks again")
		s.now = s.now.Add(last.RequeueAfter)
	}
	assert.Less(t, writes, 30, "within an hour")
	assert.Greater(t, writes, 10, "it does not give up")

	// Another content is written at once.
	spoil()
	s.ports["i"] = 40001
	s.passes(1)
	assert.True(t, leads())

	// The other program ends: an edit much later is undone at once.
	s.now = s.now.Add(3 * decide.LongestPause)
	spoil()
	s.passes(1)
	assert.True(t, leads())
}
