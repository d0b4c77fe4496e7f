package modelcache

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// kept returns a cache of a model that was created at that second.
func kept(name, model string, made int64, missing v1alpha1.ModelMissing) v1alpha1.ClusterModelCache {
	return v1alpha1.ClusterModelCache{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1, CreationTimestamp: metav1.NewTime(time.Unix(made, 0))},
		Spec:       v1alpha1.ClusterModelCacheSpec{Source: v1alpha1.ModelSource{URI: model}, NodeGroups: []string{"a", "b"}, OnMissing: missing},
		Status:     v1alpha1.ClusterModelCacheStatus{ObservedGeneration: 1},
	}
}

func TestOldestCacheDecidesOnMissing(t *testing.T) {
	going := kept("going", "hf://org/m", 0, v1alpha1.MissingFail)
	now := metav1.Now()
	going.DeletionTimestamp = &now
	branch := kept("branch", "hf://org/m", 0, v1alpha1.MissingWait)
	branch.Spec.Source.Revision, branch.Status.Revision = "v1", "c1"
	all := []v1alpha1.ClusterModelCache{
		kept("younger", "hf://org/m", 2, v1alpha1.MissingFail), kept("oldest", "hf://org/m", 1, v1alpha1.MissingWait), going, branch,
		kept("fails", "s3://m/a", 1, v1alpha1.MissingFail), kept("downloads", "hf://org/d", 1, v1alpha1.MissingDownload), kept("waits", "hf://org/d", 2, v1alpha1.MissingWait),
		kept("of before there was a word for it", "hf://org/e", 1, ""),
	}
	for name, want := range map[modelref.Name]*dualpods.ModelKeeper{
		{Model: "org/m"}:                       {Name: "oldest", Waits: true},
		{Model: "hf://org/m@main"}:             {Name: "oldest", Waits: true},
		{Model: "org/m", Revision: "v1"}:       {Name: "branch", Waits: true},
		{Model: "org/m", Revision: "c1"}:       {Name: "branch", Waits: true},
		{Model: "org/m", Revision: "v2"}:       nil,
		{Model: "s3://m/a/"}:                   {Name: "fails"},
		{Model: "s3://m/a/below/it"}:           {Name: "fails"},
		{Model: "org/d"}:                       nil,
		{Model: "org/e"}:                       nil,
		{Model: "/folder/of/the/engine/image"}: nil,
	} {
		got := KeeperOf(all, name, "node-1")
		if got != nil {
			assert.NotEmpty(t, got.Node)
			got.Node = ""
		}
		assert.Equal(t, want, got, name)
	}
}

// stages are the successive reports of a cache on a node.
var stages = []struct {
	what string
	now  func(*v1alpha1.ClusterModelCache)
	word string
}{
	{"the controller has not seen the cache", func(c *v1alpha1.ClusterModelCache) { c.Status.ObservedGeneration = 0 }, "node n has not started to fetch its model"},
	{"the node is in none of its groups", nil, "no launcher fetches its model on node n, which is in none of the ModelCacheNodeGroups a, b: add the node to one of them, or run the requester on a node of one"},
	{"a group is missing", func(c *v1alpha1.ClusterModelCache) {
		c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAvailable, Reason: v1alpha1.ReasonNodeGroupMissing, Message: "there is no ModelCacheNodeGroup b"}}
	}, "no launcher fetches its model on node n: there is no ModelCacheNodeGroup b"},
	{"it waits", on(v1alpha1.ModelNodeWaiting, 0, "it fetches another first"), "node n has not started to fetch its model: it fetches another first"},
	{"it has begun", on(v1alpha1.ModelNodeDownloading, 3, ""), "node n is fetching its model and has 0 % of it"},
	{"it is further", on(v1alpha1.ModelNodeDownloading, 47, ""), "node n is fetching its model and has 40 % of it"},
	{"it has failed", on(v1alpha1.ModelNodeFailed, 0, "401"), "node n failed to fetch its model: 401"},
	{"the store has it under another name", on(v1alpha1.ModelNodeReady, 0, ""), "node n reports the model as ready in the folder of the ModelCacheNodeGroups a, b, but its launcher does not have it there"},
	{"it is being removed", on(v1alpha1.ModelNodeRemoving, 0, "in use"), "node n is removing its model: in use"},
	{"there are too many nodes", func(c *v1alpha1.ClusterModelCache) { c.Status.NodesLeftOut = 7 }, "the launcher of node n does not have the whole model; the status of the cache has no room for the node's progress"},
}

// on adds a node to the status.
func on(state v1alpha1.ModelNodeState, percent int32, why string) func(*v1alpha1.ClusterModelCache) {
	return func(c *v1alpha1.ClusterModelCache) {
		c.Status.Nodes = []v1alpha1.ModelNode{{Node: "m"}, {Node: "n", State: state, Percent: percent, Why: why}}
	}
}

func TestNodeProgressIsDescribed(t *testing.T) {
	for _, stage := range stages {
		c := kept("c", "hf://org/m", 0, v1alpha1.MissingWait)
		if stage.now != nil {
			stage.now(&c)
		}
		assert.Equal(t, stage.word, nodeProgress(&c, "n"), stage.what)
	}
}

func TestChangedReturnsTheAffectedNodes(t *testing.T) {
	for what, c := range map[string]struct {
		before, after func(*v1alpha1.ClusterModelCache)
		all           bool
		nodes         []string
	}{
		"a node begins to fetch":     {before: on(v1alpha1.ModelNodeWaiting, 0, ""), after: on(v1alpha1.ModelNodeDownloading, 0, ""), nodes: []string{"n"}},
		"a node is a tenth further":  {before: on(v1alpha1.ModelNodeDownloading, 19, ""), after: on(v1alpha1.ModelNodeDownloading, 20, ""), nodes: []string{"n"}},
		"a node is a little further": {before: on(v1alpha1.ModelNodeDownloading, 11, ""), after: on(v1alpha1.ModelNodeDownloading, 19, "")},
		"nodes join its groups":      {after: on(v1alpha1.ModelNodeWaiting, 0, ""), nodes: []string{"m", "n"}},
		"nodes leave its groups":     {before: on(v1alpha1.ModelNodeRemoving, 0, ""), nodes: []string{"m", "n"}},
		"a missing group is created": {before: stages[2].now, all: true},
		"its users change":           {after: func(c *v1alpha1.ClusterModelCache) { c.Status.InUse = 3 }},
		"onMissing changes":          {after: func(c *v1alpha1.ClusterModelCache) { c.Spec.OnMissing = v1alpha1.MissingDownload }, all: true},
		"its revision becomes known": {after: func(c *v1alpha1.ClusterModelCache) { c.Status.Revision = "c1" }, all: true},
		"it is being deleted":        {after: func(c *v1alpha1.ClusterModelCache) { c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, all: true},
		"a node begins to fetch, and requesters do not wait": {
			before: func(c *v1alpha1.ClusterModelCache) { c.Spec.OnMissing = v1alpha1.MissingFail; stages[3].now(c) },
			after:  func(c *v1alpha1.ClusterModelCache) { c.Spec.OnMissing = v1alpha1.MissingFail; stages[4].now(c) },
		},
	} {
		before, after := kept("c", "hf://org/m", 0, v1alpha1.MissingWait), kept("c", "hf://org/m", 0, v1alpha1.MissingWait)
		if c.before != nil {
			c.before(&before)
		}
		if c.after != nil {
			c.after(&after)
		}
		all, nodes := Changed(&before, &after)
		assert.Equal(t, c.all, all, what)
		assert.Equal(t, c.nodes, nodes, what)
	}
}
