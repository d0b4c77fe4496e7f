package modelcache

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// BenchmarkDecide decides for 1,000 nodes that have 100 models each.
func BenchmarkDecide(b *testing.B) {
	w := world()
	w.Caches, w.Launchers, w.Nodes = nil, nil, map[string]Node{}
	for n := range 100 {
		w.Caches = append(w.Caches, v1alpha1.ClusterModelCache{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m%d", n), UID: types.UID(fmt.Sprint(n))},
			Spec:       v1alpha1.ClusterModelCacheSpec{Source: v1alpha1.ModelSource{URI: fmt.Sprintf("hf://org/m%d", n)}, NodeGroups: []string{"gpu"}},
			Status:     v1alpha1.ClusterModelCacheStatus{Revision: commit},
		})
	}
	for n := range 1000 {
		l := Launcher{UID: fmt.Sprint("l", n), Node: fmt.Sprint("n", n), Group: "gpu", Path: "/models", Models: map[string]nodeview.Model{}}
		w.Nodes[l.Node] = Node{Labels: map[string]string{"gpu": "yes"}}
		for i := range w.Caches {
			id := fmt.Sprint(i)
			l.Models[id] = nodeview.NewModel(launcherapi.Model{ID: id, State: launcherapi.ModelReady, Revision: commit, WantedBy: []string{Holder(&w.Caches[i])}})
		}
		w.Launchers = append(w.Launchers, l)
	}
	for b.Loop() {
		if calls := Decide(w).Calls; len(calls) > 0 {
			b.Fatal("something is asked for: ", calls[0])
		}
	}
}
