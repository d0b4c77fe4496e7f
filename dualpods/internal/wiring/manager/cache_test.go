package manager

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestTheTokensOfLaunchersAreAllTheSecretsThatAreWatched(t *testing.T) {
	own, err := ownOnly()
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
