package nodeview

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestPoolSharesEqualModelsOnly(t *testing.T) {
	p := newPool()
	earlier, later := time.Unix(1, 0), time.Unix(2, 0)
	say := func(change func(*launcherapi.Model)) Model {
		m := launcherapi.Model{ID: "a", URI: "hf://org/a", Refs: []string{"main"}, State: launcherapi.ModelReady, WantedBy: []string{"c"}, Path: "/models/a/files", Published: &earlier}
		change(&m)
		return p.keep(m)
	}
	first := say(func(*launcherapi.Model) {})
	second := say(func(m *launcherapi.Model) {
		m.Published, m.LastUsed, m.Path, m.Rate = &later, &later, "/disk/a/files", 1
	})
	assert.Same(t, first.Model, second.Model)
	assert.Equal(t, []int64{earlier.UnixNano(), later.UnixNano()}, []int64{first.Published, second.Published})
	for what, change := range map[string]func(*launcherapi.Model){
		"state":     func(m *launcherapi.Model) { m.State = launcherapi.ModelDamaged },
		"names":     func(m *launcherapi.Model) { m.Refs = append(m.Refs, "v1") },
		"holders":   func(m *launcherapi.Model) { m.WantedBy = nil },
		"users":     func(m *launcherapi.Model) { m.InUseBy = []string{"instance"} },
		"memory":    func(m *launcherapi.Model) { m.PageCache = launcherapi.PageCacheWhole },
		"progress":  func(m *launcherapi.Model) { m.FetchedBytes = 1 },
		"selection": func(m *launcherapi.Model) { m.Lacks = []string{"config.json"} },
	} {
		other := say(change)
		assert.NotSame(t, first.Model, other.Model, what)
		assert.Equal(t, "hf://org/a", other.URI, what)
	}
	runtime.KeepAlive(first)
}

func TestCandidateIDsFollowTheHeldModels(t *testing.T) {
	p := newPool()
	var all []Model
	for id, uri := range map[string]string{"a": "hf://org/a", "a2": "hf://org/a", "b": "hf://org/b", "s": "s3://m/a/", "at": "https://host/m@1"} {
		all = append(all, p.keep(launcherapi.Model{ID: id, URI: uri}))
	}
	for name, ids := range map[string][]string{
		"org/a": {"a", "a2", "org/a"}, "hf://org/a@v1": {"a", "a2", "hf://org/a@v1"}, "org/b": {"b", "org/b"}, "org/c": {"org/c"},
		"s3://m/a": {"s", "s3://m/a"}, "s3://m/a/b/c": {"s", "s3://m/a/b/c"}, "s3://m/ab": {"s3://m/ab"}, "https://host/m@1": {"at", "https://host/m@1"}, "b": {"b"}, "": {""},
	} {
		assert.ElementsMatch(t, ids, p.candidateIDs(modelref.Name{Model: name}), name)
	}
	runtime.KeepAlive(all)
	clear(all)
	require.Eventually(t, func() bool {
		runtime.GC()
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.held)+len(p.ids) == 0
	}, patience.Wait(), time.Millisecond, "models that no View has are freed")
	assert.Equal(t, []string{"org/a"}, p.candidateIDs(modelref.Name{Model: "org/a"}))
	assert.NotNil(t, p.keep(launcherapi.Model{ID: "a", URI: "hf://org/a"}).Model, "the same model can come again")
}

func BenchmarkCandidateIDs(b *testing.B) {
	p := newPool()
	var all []Model
	for n := range 1000 {
		all = append(all, p.keep(launcherapi.Model{ID: fmt.Sprint(n), URI: fmt.Sprint("hf://org/model-", n)}))
	}
	for b.Loop() {
		if ids := p.candidateIDs(modelref.Name{Model: "org/model-7"}); len(ids) != 2 {
			b.Fatal(ids)
		}
	}
	runtime.KeepAlive(all)
}
