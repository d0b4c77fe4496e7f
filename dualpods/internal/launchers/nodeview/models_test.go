package nodeview

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
)

func TestLauncherHasAWholeModelByEachName(t *testing.T) {
	v := View{Models: map[string]Model{
		"a": NewModel(launcherapi.Model{ID: "a", URI: "hf://org/a", Refs: []string{"main"}, State: launcherapi.ModelReady}),
		"b": NewModel(launcherapi.Model{ID: "b", URI: "hf://org/b", Refs: []string{"main"}, State: launcherapi.ModelDownloading}),
		"c": NewModel(launcherapi.Model{ID: "c", URI: "hf://org/c", Refs: []string{"v1"}, State: launcherapi.ModelReady}),
		"d": NewModel(launcherapi.Model{ID: "d", URI: "hf://org/d", Refs: []string{"main"}, State: launcherapi.ModelReady, Lacks: []string{"config.json"}}),
		"e": NewModel(launcherapi.Model{ID: "e", URI: "s3://m/e", State: launcherapi.ModelReady}),
	}}
	for name, whole := range map[string]bool{"org/a": true, "hf://org/a": true, "a": true, "org/b": false, "org/c": false, "org/c@v1": true, "org/d": false, "d": true, "s3://m/e/f": true, "org/f": false} {
		assert.Equal(t, whole, v.Has(modelref.Name{Model: name}), name)
	}
	assert.False(t, View{}.Has(modelref.Name{Model: "org/a"}))
}

func TestDownloadProgressDoesNotChangeTheWholeModels(t *testing.T) {
	l := newHost(t)
	say := func(m launcherapi.Model) {
		m.ID, m.URI = "a", "hf://org/a"
		l.change(func() { l.models = map[string]launcherapi.Model{"a": m} })
	}
	var whole, all atomic.Int64
	s := newSet(t, Options{ModelsChanged: func(_ string, w bool) {
		if w {
			whole.Add(1)
		}
		all.Add(1)
	}})
	target := l.target()
	target.Models = true
	told := func(what string, m launcherapi.Model, times int64) {
		t.Helper()
		before := all.Load()
		say(m)
		s.until(what, "one", func(v View) bool {
			return v.Models["a"].State == m.State && v.Models["a"].FetchedBytes == m.FetchedBytes && len(v.Models["a"].Refs) == len(m.Refs) && all.Load() > before
		})
		assert.Equal(t, times, whole.Load(), what)
	}
	say(launcherapi.Model{State: launcherapi.ModelDownloading})
	s.Watch("one", target)
	s.until("its models are known", "one", func(v View) bool { return v.Models != nil && all.Load() > 0 })
	assert.EqualValues(t, 1, whole.Load(), "the first list reports its whole models")
	told("more is downloaded", launcherapi.Model{State: launcherapi.ModelDownloading, FetchedBytes: 1}, 1)
	told("still more is downloaded", launcherapi.Model{State: launcherapi.ModelDownloading, FetchedBytes: 2}, 1)
	told("it is whole", launcherapi.Model{State: launcherapi.ModelReady}, 2)
	told("it has another name", launcherapi.Model{State: launcherapi.ModelReady, Refs: []string{"main"}}, 3)
	told("it is damaged", launcherapi.Model{State: launcherapi.ModelDamaged, Refs: []string{"main"}}, 4)
	before := whole.Load()
	l.change(func() { l.noModels = true })
	s.until("its models are unknown", "one", func(v View) bool { return v.Models == nil && whole.Load() > before })
}

func TestSameWholeComparesWholeModelsAndNames(t *testing.T) {
	model := func(state string, refs ...string) map[string]Model {
		return map[string]Model{"a": NewModel(launcherapi.Model{ID: "a", State: state, Refs: refs})}
	}
	ready, failed, none := model(launcherapi.ModelReady, "main"), model(launcherapi.ModelFailed), map[string]Model{}
	for what, c := range map[string]struct {
		before, now map[string]Model
		same        bool
	}{
		"there are no models":          {none, none, true},
		"the model is the same object": {ready, ready, true},
		"the model is equal":           {ready, model(launcherapi.ModelReady, "main"), true},
		"a whole model comes":          {none, ready, false},
		"a whole model goes":           {ready, none, false},
		"the model becomes whole":      {failed, ready, false},
		"the model stops being whole":  {ready, failed, false},
		"the model gets another name":  {ready, model(launcherapi.ModelReady, "main", "v1"), false},
		"a failed model comes":         {none, failed, true},
		"a failed model goes":          {failed, none, true},
	} {
		assert.Equal(t, c.same, sameWhole(c.before, c.now), what)
	}
}
