package modelcache

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// labelAction is what to do with the label of a model on a node. When the stores of a node
// differ, the last in this order counts.
type labelAction int

const (
	labelSet labelAction = iota
	labelKeep
	labelRemove
)

// labelAction returns what to do with the label for one store. The label stays while no
// launcher reports the store's models, as while the launcher is being replaced.
func (d *decision) labelAction(at store, state v1alpha1.ModelNodeState) labelAction {
	switch s := d.stores[at]; {
	case state == v1alpha1.ModelNodeReady:
		return labelSet
	case s == nil || s.Models == nil:
		return labelKeep
	default:
		return labelRemove
	}
}

// recordLabels records what to do with the label of a cache on each node.
func (d *decision) recordLabels(cache string, nodes map[string]labelAction) {
	for node, is := range nodes {
		if is == labelRemove {
			delete(d.plan.Labels[node], cache)
		} else {
			d.labelsOf(node)[cache] = is == labelSet
		}
	}
}

// keepLabels makes all nodes that have the label of a cache keep it.
func (d *decision) keepLabels(cache string) {
	for name, node := range d.Nodes {
		if _, has := node.Labels[podmeta.ModelLabel(cache)]; has {
			d.labelsOf(name)[cache] = false
		}
	}
}

func (d *decision) labelsOf(node string) map[string]bool {
	if d.plan.Labels[node] == nil {
		d.plan.Labels[node] = map[string]bool{}
	}
	return d.plan.Labels[node]
}

// maxConcurrentWrites is the number of concurrent writes. labelTimeout bounds a write.
// labelPause is the pause after a failed write of a node.
const (
	maxConcurrentWrites = 16
	labelTimeout        = 2 * time.Second
	labelPause          = time.Minute
)

// writeLabels writes the labels of the nodes. It logs failed writes and returns when to repeat
// them; zero: none failed.
func (c *Controller) writeLabels(ctx context.Context, w *World, plan *Plan) (again time.Time) {
	maps.DeleteFunc(c.failedNodes, func(_ string, until time.Time) bool { return !until.After(w.Now) })
	var mu sync.Mutex
	var refused []string
	var writing sync.WaitGroup
	turns := make(chan struct{}, maxConcurrentWrites)
	for name, node := range w.Nodes {
		changes := labelChanges(node.Labels, plan.Labels[name])
		if _, left := c.failedNodes[name]; left || len(changes) == 0 {
			continue
		}
		turns <- struct{}{}
		writing.Go(func() {
			defer func() { <-turns }()
			if err := c.patchLabels(ctx, name, changes); err != nil {
				mu.Lock()
				defer mu.Unlock()
				c.opts.Log.Error(err, "cannot label a node; the scheduler may not know where a model is")
				refused = append(refused, name)
			}
		})
	}
	writing.Wait()
	for _, name := range refused {
		c.failedNodes[name] = w.Now.Add(labelPause)
	}
	for _, until := range c.failedNodes {
		if again.IsZero() || until.Before(again) {
			again = until
		}
	}
	return again
}

func (c *Controller) patchLabels(ctx context.Context, node string, changes map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": changes}})
	if err == nil {
		ctx, stop := context.WithTimeout(ctx, labelTimeout)
		defer stop()
		err = c.opts.API.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.MergePatchType, patch))
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot label node %s with the models that it has: %w", node, err)
	}
	return nil
}

// labelChanges returns the labels to set, and with nil those to remove.
func labelChanges(has map[string]string, wanted map[string]bool) map[string]any {
	changes := map[string]any{}
	for cache, there := range wanted {
		if key := podmeta.ModelLabel(cache); there && has[key] != podmeta.ModelReady {
			changes[key] = podmeta.ModelReady
		}
	}
	for key := range has {
		cache, ours := strings.CutPrefix(key, podmeta.ModelLabelPrefix)
		if _, stays := wanted[cache]; ours && !stays {
			changes[key] = nil
		}
	}
	return changes
}
