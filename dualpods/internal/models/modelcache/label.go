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

// labelling is what becomes of the label of a model on a node. Of several stores of the
// node the one counts that comes last here.
type labelling int

const (
	labelOn labelling = iota
	labelStays
	labelOff
)

// labelling says what becomes of it by what one store has. It stays as it is while no
// launcher there says what it has: the one that was may be replaced just now.
func (d *decision) labelling(at store, state v1alpha1.ModelNodeState) labelling {
	switch s := d.stores[at]; {
	case state == v1alpha1.ModelNodeReady:
		return labelOn
	case s == nil || s.Models == nil:
		return labelStays
	default:
		return labelOff
	}
}

// label notes what becomes of the labels of a cache, by node.
func (d *decision) label(cache string, nodes map[string]labelling) {
	for node, is := range nodes {
		if is == labelOff {
			delete(d.plan.Labels[node], cache)
		} else {
			d.labelsOf(node)[cache] = is == labelOn
		}
	}
}

// stayLabelled has the nodes keep the label of a model that they have.
func (d *decision) stayLabelled(cache string) {
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

// nodesAtOnce is how many nodes are written at the same time, labelTime bounds a write,
// and a node that could not be written is left alone for labelPause.
const (
	nodesAtOnce = 16
	labelTime   = 2 * time.Second
	labelPause  = time.Minute
)

// label has the nodes have the labels of the models that they have. It gives when to try
// again where that was refused, which is logged; zero: nowhere.
func (c *Controller) label(ctx context.Context, w *World, plan *Plan) (again time.Time) {
	maps.DeleteFunc(c.refused, func(_ string, until time.Time) bool { return !until.After(w.Now) })
	var mu sync.Mutex
	var refused []string
	var writing sync.WaitGroup
	turns := make(chan struct{}, nodesAtOnce)
	for name, node := range w.Nodes {
		changes := labelChanges(node.Labels, plan.Labels[name])
		if _, left := c.refused[name]; left || len(changes) == 0 {
			continue
		}
		turns <- struct{}{}
		writing.Go(func() {
			defer func() { <-turns }()
			if err := c.relabel(ctx, name, changes); err != nil {
				mu.Lock()
				defer mu.Unlock()
				c.opts.Log.Error(err, "the scheduler may not know where a model is")
				refused = append(refused, name)
			}
		})
	}
	writing.Wait()
	for _, name := range refused {
		c.refused[name] = w.Now.Add(labelPause)
	}
	for _, until := range c.refused {
		if again.IsZero() || until.Before(again) {
			again = until
		}
	}
	return again
}

func (c *Controller) relabel(ctx context.Context, node string, changes map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": changes}})
	if err == nil {
		ctx, stop := context.WithTimeout(ctx, labelTime)
		defer stop()
		err = c.opts.API.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.MergePatchType, patch))
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot label node %s with the models that it has: %w", node, err)
	}
	return nil
}

// labelChanges are the labels to be set, and with nil those to be taken off.
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
