package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReleaseRequiresTheStagingModulesPublishedWithIt(t *testing.T) {
	ours, err := releaseGoMod([]byte(`module k8s.io/kubernetes

go 1.24.0

godebug default=go1.24

require (
	github.com/spf13/cobra v1.8.1
	k8s.io/api v0.0.0
)

replace (
	example.com/fork => example.com/fork v1.2.3
	k8s.io/api => ./staging/src/k8s.io/api
)
`), "1.33.5")
	require.NoError(t, err)
	require.Equal(t, `module hotseat.dev/hotseat/test/cluster/kube

go 1.24.0

godebug default=go1.24

require (
	github.com/spf13/cobra v1.8.1
	k8s.io/api v0.0.0
	k8s.io/kubernetes v1.33.5
)

replace (
	example.com/fork => example.com/fork v1.2.3
	k8s.io/api => k8s.io/api v0.33.5
)
`, string(ours))
}

func TestOtherReleaseHasAProgramOfItsOwn(t *testing.T) {
	source := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(source, "main.go"), []byte("package main"), 0o644))
	keys := map[string]string{}
	for _, release := range []string{"", "1.33.5", "1.35.0"} {
		key, err := keyOf(source, release)
		require.NoError(t, err)
		require.NotContains(t, keys, key)
		keys[key] = release
	}
}

func TestMisspelledReleaseIsRefused(t *testing.T) {
	for _, release := range []string{"v1.33.5", "1.33", "1.33.x", "latest", "1.33.5-rc.0"} {
		_, err := kubernetesOf(release)
		require.EqualError(t, err, `HOTSEAT_KUBERNETES is "`+release+`", which is no release of Kubernetes: write it as 1.33.5`)
	}
	e, err := kubernetesOf("")
	require.NoError(t, err)
	require.Equal(t, "Kubernetes", e.name)
}

func TestProxyOfAnEarlierReleaseIsEndedWithItsNode(t *testing.T) {
	for release, stays := range map[string]bool{"": false, "1.33.5": true, "1.36.0": true, "1.37.1": false, "1.40.0": false} {
		require.Equal(t, stays, proxyStays(release), release)
	}
}
