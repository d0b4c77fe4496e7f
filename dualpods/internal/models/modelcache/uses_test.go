package modelcache

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// tells is a launcher that reports these models; nil: it is silent.
type tells struct {
	gate
	models []launcherapi.Model
}

func (l *tells) Pick(string, func(string, launcherapi.Instance) bool) nodeview.View {
	if l.models == nil {
		return nodeview.View{WhyNoModels: "it does not answer"}
	}
	view := nodeview.View{Models: map[string]nodeview.Model{}}
	for _, m := range l.models {
		view.Models[m.ID] = nodeview.NewModel(m)
	}
	return view
}

func TestUsesComeFromTheLaunchersOfNow(t *testing.T) {
	s := newGatedSite(t)
	launcher := &tells{}
	s.c.opts.Launchers = launcher
	var cache v1alpha1.ClusterModelCache
	require.NoError(t, s.api.Get(t.Context(), client.ObjectKey{Name: "llama"}, &cache))
	cache.Status.InUse, cache.Status.Nodes = 1, []v1alpha1.ModelNode{{Node: "n1", InUseBy: []string{"instance z"}}}
	model := func(wanted, used []string) []launcherapi.Model {
		return []launcherapi.Model{{ID: "id", WantedBy: wanted, InUseBy: used}}
	}
	for what, c := range map[string]struct {
		says []launcherapi.Model
		uses []string
	}{
		"instances use it":                    {says: model([]string{"other", holder}, []string{"instance b", "instance a", "instance b"}), uses: []string{"on node n1 by instance a, instance b"}},
		"the earlier user is gone":            {says: model([]string{holder}, nil)},
		"its model is used for another cache": {says: model([]string{"ClusterModelCache/llama/another"}, []string{"instance a"})},
		"the launcher is silent":              {},
	} {
		launcher.models = c.says
		uses, err := s.c.Uses(t.Context(), &cache)
		require.NoError(t, err)
		assert.Equal(t, c.uses, uses, what)
	}
}
