package manager

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestTheTokensOfLaunchersAreAllTheSecretsThatAreWatched(t *testing.T) {
	own, err := ownOnly(Options{})
	require.NoError(t, err)
	for o, by := range own {
		if _, ok := o.(*corev1.Secret); !ok {
			continue
		}
		assert.True(t, by.Label.Matches(labels.Set{podmeta.LabelLauncherConfig: "any"}))
		assert.False(t, by.Label.Matches(labels.Set{podmeta.LabelManagedBy: podmeta.ManagedBy}))
		return
	}
	require.Fail(t, "all Secrets are watched")
}

func TestEndpointSlicesOfOthersAreNotWatched(t *testing.T) {
	watched := func(opts Options) labels.Selector {
		own, err := ownOnly(opts)
		require.NoError(t, err)
		for o, by := range own {
			if _, ok := o.(*discoveryv1.EndpointSlice); ok {
				return by.Label
			}
		}
		require.Fail(t, "all EndpointSlices are watched")
		return nil
	}
	by := func(keeper string) labels.Set { return labels.Set{discoveryv1.LabelManagedBy: keeper} }
	for _, opts := range []Options{{}, {AdmissionPort: 9443}, {AdmissionPort: 9443, Namespace: "only"}} {
		assert.True(t, watched(opts).Matches(by(podmeta.ManagedByEndpoints)))
		assert.True(t, watched(opts).Matches(by(podmeta.ManagedByServing)))
		assert.False(t, watched(opts).Matches(by("endpointslice-controller.k8s.io")))
		assert.False(t, watched(opts).Matches(labels.Set{}))
		assert.Equal(t, answersAdmission(opts), watched(opts).Matches(by(podmeta.ManagedBy)), "the slice of the admission webhook")
	}
}

func TestOfTheControllersNamespaceTheAgentsAreWatchedToo(t *testing.T) {
	for _, watched := range []string{"theirs", "system"} {
		into := map[client.Object]cache.ByObject{}
		require.NoError(t, withAgents(into, Options{Namespace: watched, CANamespace: "system"}))
		require.Len(t, into, 1)
		for o, by := range into {
			assert.IsType(t, &corev1.Pod{}, o)
			assert.Contains(t, by.Namespaces, watched)
			assert.Nil(t, by.Namespaces[watched].LabelSelector, "all Pods of the namespace that is watched")
			if watched != "system" {
				only := by.Namespaces["system"].LabelSelector
				assert.True(t, only.Matches(labels.Set{podmeta.LabelComponent: podmeta.ComponentAgent}))
				assert.False(t, only.Matches(labels.Set{podmeta.LabelComponent: podmeta.ComponentLauncher}))
			}
		}
	}
}
